//! `differential`: builds the differential test and hands its arguments on.

use std::process::ExitCode;

/// How many queries are compared when nobody says.
const QUERIES: [&str; 2] = ["--queries", "20000"];

/// Runs it.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let mut arguments = arguments.to_vec();
    let bounded = ["--queries", "--seconds", "--query"];
    if !arguments.iter().any(|argument| bounded.contains(&argument.as_str())) {
        arguments.extend(QUERIES.map(str::to_owned));
    }
    crate::built::run("rekindle-differential", &[], &arguments)
}
