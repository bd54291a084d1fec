//! `sim`: builds the simulation of whole clusters with its mutants and runs it with the other arguments.

use std::process::ExitCode;

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    crate::built::run("rekindle-simulation", &["--features", "rekindle-simulation/mutants"], arguments)
}
