//! `bench report`: the results in a folder as one page.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::report;

/// Writes the results in a folder as one page that works offline
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Folder of result files (--json)
    folder: PathBuf,
    /// The page
    #[arg(short = 'o', long = "output", value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

pub fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let found = report::write_page(&args.folder, &args.output)?;
    found.skipped.iter().for_each(|why| eprintln!("left out: {why}"));
    println!("{} results in {}", found.runs.len() + found.sweeps.len(), args.output.display());
    Ok(ExitCode::SUCCESS)
}
