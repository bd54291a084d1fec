//! Options of every command that injects faults, and its exit status.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use super::node::default_program;

/// The program under test and the seed of a run.
#[derive(clap::Args)]
pub struct RunOptions {
    /// The program under test [default: the one beside this]
    #[arg(long, default_value_os_t = default_program(), hide_default_value = true)]
    pub program: PathBuf,
    /// Seed of the random decisions; printed, so that a run can be repeated [default: random]
    #[arg(long, default_value_t = rand::random(), hide_default_value = true)]
    pub seed: u64,
}

/// Prints the result of a command in the form that `cargo xtask test` counts; returns the exit status.
pub fn verdict(task: &str, kept: Result<bool>) -> ExitCode {
    let kept = kept.unwrap_or_else(|error| {
        println!("{task}: {error:#}");
        false
    });
    let (passed, failed) = (u8::from(kept), u8::from(!kept));
    println!("{passed} passed, {failed} failed");
    ExitCode::from(failed)
}
