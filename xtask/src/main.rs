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
use torture::{crash, failover, histories, index_build, reshard};

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about = "The developers' tool of Rekindle")]
struct Command {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check what a program can check of STYLE: layers, module circles, lengths, docstrings
    Tidy,
    /// Every test there is; the last line says how many passed and failed
    Test {
        /// Steps to run instead of all
        steps: Vec<String>,
    },
    /// A suite of ReQL cases against a node; no area may pass fewer than it did
    Conformance(conformance::Options),
    /// Random queries against a node and a plain evaluator of its own; the first difference is made small and
    /// shown (--help after it says more)
    #[command(disable_help_flag = true)]
    Differential(Words),
    /// kill -9 under writers; nothing acknowledged may be lost
    Crash(crash::Options),
    /// kill -9, or stop, the node that leads under writers, three replicas; how long writes rest, and nothing
    /// acknowledged may be lost
    Failover(failover::Options),
    /// A table is split, merged, moved, given other replicas and rebalanced under writers and readers; no
    /// client may see an error, and writes may not rest for long
    Reshard(reshard::Options),
    /// Reads and changes of documents on nodes that are killed, stopped, cut off or given other shards; porcupine
    /// (needs go) says whether they can have happened
    Histories(histories::Options),
    /// Indexes built under writes and kill -9 equal their functions over the rows; the slowest writes beside
    /// a build and without
    IndexBuild(index_build::Options),
    /// What runs often in the program, recorded for tools/build (needs rustup's component llvm-tools)
    Pgo(pgo::Options),
    /// A node of its own, the published workloads for a few seconds each, and a page
    Report(report::Options),
    /// Whole clusters in one thread, by seed: docs/simulation.md (--help after it says more)
    #[command(disable_help_flag = true)]
    Sim(Words),
}

/// Words for another program.
#[derive(Args)]
struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

fn main() -> ExitCode {
    match Command::parse().task {
        Task::Tidy => tidy::run(),
        Task::Test { steps } => test::run(&steps),
        Task::Conformance(options) => conformance::run(&options),
        Task::Differential(Words { words }) => differential::run(&words),
        Task::Crash(options) => crash::run(&options),
        Task::Failover(options) => failover::run(&options),
        Task::Reshard(options) => reshard::run(&options),
        Task::Histories(options) => histories::run(&options),
        Task::IndexBuild(options) => index_build::run(&options),
        Task::Pgo(options) => pgo::run(&options),
        Task::Report(options) => report::run(&options),
        Task::Sim(Words { words }) => sim::run(&words),
    }
}
