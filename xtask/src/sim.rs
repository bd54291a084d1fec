//! `sim`: builds the simulation of whole clusters, such that faults can be planted, and hands the rest of
//! the words to it.

use std::process::ExitCode;

/// Runs it.
pub(crate) fn run(words: &[String]) -> ExitCode {
    crate::built::run("rekindle-simulation", &["--features", "rekindle-simulation/mutants"], words)
}
