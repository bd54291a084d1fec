//! `bench report`: the results in a folder as one page.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use crate::report;

/// Writes the results in a folder as one page that opens without a network
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Folder of result files (--json)
    folder: PathBuf,
    /// The page
    #[arg(short = 'o', long = "output", value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

/// Runs the command.
pub fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let report::Collected { runs, sweeps, skipped } = report::collect(&args.folder)?;
    let skipped: Vec<String> = skipped.iter().map(ToString::to_string).collect();
    skipped.iter().for_each(|why| eprintln!("left out: {why}"));
    let page = report::render(&runs, &sweeps, &skipped);
    std::fs::write(&args.output, page).with_context(|| format!("writing {}", args.output.display()))?;
    println!("{} results in {}", runs.len() + sweeps.len(), args.output.display());
    Ok(ExitCode::SUCCESS)
}
