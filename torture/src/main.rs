//! The commands of the long tests: `cargo run --release -p rekindle-torture -- help` lists them.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rekindle_torture::{crash, failover, feeds, histories, index_build, reshard};

#[derive(Parser)]
#[command(bin_name = "rekindle-torture", about = "Long tests that fail the nodes of Rekindle on purpose")]
struct Command {
    #[command(subcommand)]
    test: Test,
}

#[derive(Subcommand)]
enum Test {
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
}

fn main() -> ExitCode {
    match Command::parse().test {
        Test::Crash(options) => crash::run(&options),
        Test::Failover(options) => failover::run(&options),
        Test::Feeds(options) => feeds::run(&options),
        Test::Reshard(options) => reshard::run(&options),
        Test::Histories(options) => histories::run(&options),
        Test::IndexBuild(options) => index_build::run(&options),
    }
}
