//! The command lines `rekindle check` and `rekindle salvage`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::check::check;
use crate::folder::Folder;
use crate::progress::Progress;
use crate::salvage::{SalvageOptions, salvage};

/// The exit code for damage.
const DAMAGED: u8 = 1;
/// The exit code if the command could not be carried out.
const IMPOSSIBLE: u8 = 2;

/// Verify every record, row, index entry, dictionary and count of a data directory that no server has open
///
/// The exit code is 0 if nothing is damaged, 1 if something is, and 2 if the directory cannot be checked. Nothing in it is
/// changed.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// The data directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

/// Write every readable row of a data directory that no server has open into files for `rekindle import`
///
/// The exit code is 0 if everything could be read, 1 if something could not, which is named, and 2 if nothing was written.
#[derive(Args, Clone, Debug)]
pub struct SalvageArgs {
    /// The data directory; nothing in it is changed
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The folder for the files: a new one, or an empty one
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

/// Runs `rekindle check`.
#[must_use]
pub fn run_check(args: &CheckArgs) -> ExitCode {
    let mut progress = Progress::new(!args.json);
    let report =
        Folder::open(&args.directory).map_err(Into::into).and_then(|folder| check(&folder, &mut progress));
    match report {
        Ok(report) => {
            print(args.json, &report.json(), &report.lines());
            if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(DAMAGED) }
        }
        Err(error) => failed(&error),
    }
}

/// Runs `rekindle salvage`.
#[must_use]
pub fn run_salvage(args: &SalvageArgs) -> ExitCode {
    let mut progress = Progress::new(!args.json);
    let options = SalvageOptions { from: args.directory.clone(), to: args.to.clone() };
    match salvage(&options, &mut progress) {
        Ok(salvaged) => {
            print(args.json, &salvaged.json(), &salvaged.lines());
            if salvaged.is_complete() { ExitCode::SUCCESS } else { ExitCode::from(DAMAGED) }
        }
        Err(error) => failed(&error),
    }
}

fn print(as_json: bool, json: &serde_json::Value, lines: &[String]) {
    match as_json {
        true => println!("{json}"),
        false => lines.iter().for_each(|line| println!("{line}")),
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(IMPOSSIBLE)
}
