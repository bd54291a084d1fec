//! `rekindle dump` and its siblings: the tools of RethinkDB's Python package, which work with every server of the
//! protocol. RethinkDB's program runs them under the same command names.

mod restore;

use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use restore::RestoreError;

/// The commands and their descriptions.
pub const TOOLS: [(&str, &str); 6] = [
    ("dump", "Write databases and tables into one file, with rethinkdb-dump of the Python package rethinkdb"),
    ("restore", "Put back what dump wrote, with rethinkdb-restore of that package, and all write hooks"),
    ("export", "Write a file for each table, with rethinkdb-export of that package"),
    ("import", "Read tables from files, with rethinkdb-import of that package"),
    ("index-rebuild", "Build secondary indexes anew, with rethinkdb-index-rebuild of that package"),
    ("repl", "A Python prompt with r and a connection, with rethinkdb-repl of that package"),
];

/// A tool that is not installed or cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It is not installed; the Python package contains it.
    #[error(
        "`rekindle {tool}` runs `rethinkdb-{tool}` of the Python package `rethinkdb`, which is not on the PATH; \
         get it and run it with\n    \
         python3 -m venv rethinkdb-tools\n    \
         rethinkdb-tools/bin/pip install rethinkdb\n    \
         rethinkdb-tools/bin/rethinkdb-{tool} {words}"
    )]
    Missing {
        /// The command.
        tool: String,
        /// Its arguments.
        words: String,
    },
    /// The system refused to start it.
    #[error("`rethinkdb-{tool}` cannot be started: {cause}")]
    Refused {
        /// The command.
        tool: String,
        /// The system's error.
        cause: Error,
    },
}

/// Runs a tool with these arguments. Returns only for `restore`, and on failure.
pub fn run_tool(tool: &str, words: &[OsString]) -> Result<ExitCode, RestoreError> {
    match tool {
        "restore" => restore::restore(words),
        other => Err(exec_tool(other, words).into()),
    }
}

/// Replaces this process with the tool. Returns only on failure.
fn exec_tool(tool: &str, words: &[OsString]) -> ToolError {
    let cause = Command::new(format!("rethinkdb-{tool}")).args(words).exec();
    failed(tool, words, cause)
}

/// The error of a tool that could not be started with these arguments.
fn failed(tool: &str, words: &[OsString], cause: Error) -> ToolError {
    let tool = tool.to_owned();
    if cause.kind() != ErrorKind::NotFound {
        return ToolError::Refused { tool, cause };
    }
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    ToolError::Missing { tool, words: if words.is_empty() { "--help".to_owned() } else { words.join(" ") } }
}
