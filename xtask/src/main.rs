//! The developers' tool: `cargo xtask help` lists the tasks.
#![forbid(unsafe_code)]

mod built;
mod conformance;
mod differential;
mod outside;
mod pgo;
mod report;
mod sim;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use torture::{crash, failover, feeds, histories, index_build, reshard};

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about = "The developers' tool of Rekindle")]
struct Command {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the rules of STYLE.md that a program can check: layers, circles, lengths, names, docstrings, prose
    Tidy,
    /// Run every test; the last line says how many passed and failed
    Test {
        /// Steps to run instead of all
        steps: Vec<String>,
    },
    /// Run a suite of ReQL cases against a node; no area may pass fewer than before
    Conformance(conformance::Options),
    /// Compare random queries on a node and on a plain evaluator; print the first difference, reduced (more with --help
    /// after it)
    #[command(disable_help_flag = true)]
    Differential(Arguments),
    /// kill -9 under writers; nothing acknowledged may be lost
    Crash(crash::Options),
    /// kill -9, or stop, the leader of three replicas under writers; how long writes pause, and nothing acknowledged may be
    /// lost
    Failover(failover::Options),
    /// Open, close and resume changefeeds of all kinds under writes, kill -9, restarts and reshards; no change may be missing, or be
    /// delivered twice, and each feed must lead to the rows of the table
    Feeds(feeds::Options),
    /// Split, merge, move and rebalance a table and change its replicas under writers and readers; no client may see an
    /// error, and writes may not pause for long
    Reshard(reshard::Options),
    /// Read and change documents on nodes that are killed, stopped, cut off or resharded; porcupine (needs go) checks the
    /// histories
    Histories(histories::Options),
    /// Build indexes under writes and kill -9 and compare them with their functions over the rows; the slowest writes
    /// with a build and without
    IndexBuild(index_build::Options),
    /// Record the hot code of the program for tools/build (needs rustup's component llvm-tools)
    Pgo(pgo::Options),
    /// Run the published workloads for a few seconds each on a new node, and write a page
    Report(report::Options),
    /// Simulate whole clusters in one thread, by seed: docs/simulation.md (more with --help after it)
    #[command(disable_help_flag = true)]
    Sim(Arguments),
}

/// Arguments for another program.
#[derive(Args)]
struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    match Command::parse().task {
        Task::Tidy => tidy::run(),
        Task::Test { steps } => test::run(&steps),
        Task::Conformance(options) => conformance::run(&options),
        Task::Differential(Arguments { arguments }) => differential::run(&arguments),
        Task::Crash(options) => crash::run(&options),
        Task::Failover(options) => failover::run(&options),
        Task::Feeds(options) => feeds::run(&options),
        Task::Reshard(options) => reshard::run(&options),
        Task::Histories(options) => histories::run(&options),
        Task::IndexBuild(options) => index_build::run(&options),
        Task::Pgo(options) => pgo::run(&options),
        Task::Report(options) => report::run(&options),
        Task::Sim(Arguments { arguments }) => sim::run(&arguments),
    }
}
