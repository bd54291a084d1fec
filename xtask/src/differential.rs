//! `differential`: builds the differential test and runs it with the other arguments. With `--program` it compares with
//! the program instead of with a node in the process of the test.

use std::process::ExitCode;

use anyhow::{Context, Result};
use torture::harness::node::{Node, default_program};

/// The default number of queries.
const QUERIES: [&str; 2] = ["--queries", "20000"];
/// Compares with the program that lies beside this one, on an empty folder.
const PROGRAM: &str = "--program";

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let mut arguments = arguments.to_vec();
    let bounded = ["--queries", "--seconds", "--query"];
    if !arguments.iter().any(|argument| bounded.contains(&argument.as_str())) {
        arguments.extend(QUERIES.map(str::to_owned));
    }
    let Some(at) = arguments.iter().position(|argument| argument == PROGRAM) else {
        return compare(&arguments);
    };
    arguments.remove(at);
    match compare_program(&mut arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("differential: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn compare_program(arguments: &mut Vec<String>) -> Result<ExitCode> {
    let folder = tempfile::tempdir().context("a folder for the node's data")?;
    let mut node = Node::start(&default_program(), folder.path(), &["--no-http-admin"])?;
    let ports = node.wait_until_ready()?;
    println!("differential: the program, process {}, on port {}", node.pid(), ports.driver);
    arguments.extend(["--server".to_owned(), format!("127.0.0.1:{}", ports.driver)]);
    let code = compare(arguments);
    node.kill()?;
    Ok(code)
}

fn compare(arguments: &[String]) -> ExitCode {
    crate::built::run("rekindle-differential", &[], arguments)
}
