//! `differential`: builds the differential test and hands its arguments on.

use std::env;
use std::process::{Command, ExitCode};

/// How many queries are compared when nobody says.
const QUERIES: &str = "20000";

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["run", "--release", "--quiet", "--workspace", "--bin", "rekindle-differential", "--"]);
    let bounded = ["--queries", "--seconds", "--query"];
    if !arguments.iter().any(|argument| bounded.contains(&argument.as_str())) {
        command.args(["--queries", QUERIES]);
    }
    match command.args(arguments).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo could not be started: {error}");
            ExitCode::FAILURE
        }
    }
}
