//! What every task that breaks nodes on purpose is told, and how it says what came of it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use super::node::default_program;

/// Which program is tried, and with which chances.
#[derive(clap::Args)]
pub struct Trial {
    /// The program under test [default: the one beside this]
    #[arg(long, default_value_os_t = default_program(), hide_default_value = true)]
    pub program: PathBuf,
    /// Where its chances come from; printed, so that a run can be repeated [default: another each time]
    #[arg(long, default_value_t = rand::random(), hide_default_value = true)]
    pub seed: u64,
}

/// Says whether the task of this name kept its bars, in the words that are counted.
pub fn verdict(task: &str, kept: Result<bool>) -> ExitCode {
    let kept = kept.unwrap_or_else(|error| {
        println!("{task}: {error:#}");
        false
    });
    let (passed, failed) = (u8::from(kept), u8::from(!kept));
    println!("{passed} passed, {failed} failed");
    ExitCode::from(failed)
}
