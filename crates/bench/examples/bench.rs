//! The benchmark program without the server, for work on the benchmarks themselves:
//! `cargo run --release -p rekindle-bench --example bench -- ycsb run a`.

use std::process::ExitCode;

use clap::Parser;
use rekindle_bench::cli::{BenchArgs, run};

/// Measures servers of the RethinkDB protocol
#[derive(Parser)]
struct Program {
    #[command(subcommand)]
    command: BenchArgs,
}

fn main() -> anyhow::Result<ExitCode> {
    run(Program::parse().command)
}
