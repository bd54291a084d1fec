//! The command line `rekindle bench …`.

use std::process::ExitCode;

use clap::Subcommand;

use crate::commands::analytic::AnalyticArgs;
use crate::commands::baseline::BaselineArgs;
use crate::commands::blocks::BlocksArgs;
use crate::commands::feeds::FeedsArgs;
use crate::commands::hop::HopArgs;
use crate::commands::idle::IdleArgs;
use crate::commands::report::ReportArgs;
use crate::commands::reql::ReqlArgs;
use crate::commands::sweep::SweepArgs;
use crate::commands::units::UnitsArgs;
use crate::commands::wiki::WikiArgs;
use crate::commands::wiki_rows::WikiRowsArgs;
use crate::commands::ycsb_load::LoadArgs;
use crate::commands::ycsb_run::RunArgs;
use crate::commands::{
    analytic, baseline, blocks, feeds, hop, idle, report, reql, sweep, units, wiki, wiki_rows, ycsb_load,
    ycsb_run,
};

pub use crate::commands::explain::{ExplainArgs, run as explain};

/// What to measure.
#[derive(Subcommand, Clone, Debug)]
pub enum BenchArgs {
    /// YCSB's core workload, as published for RethinkDB
    #[command(subcommand)]
    Ycsb(YcsbArgs),
    /// The published map-reduce query, timed and checked
    Analytic(AnalyticArgs),
    /// Shapes of queries that applications send, and what each costs the server
    Reql(ReqlArgs),
    /// BigchainDB's write units: blocks of its era, one after the other
    Blocks(BlocksArgs),
    /// All of that at several cluster sizes, on nodes that it starts itself
    Sweep(SweepArgs),
    /// BigchainDB's six tests and its replication tests, scaled to this machine
    Units(UnitsArgs),
    /// How much more a query costs when a second server takes part in it
    Hop(HopArgs),
    /// The cost of a cluster with many tables and no queries
    Idle(IdleArgs),
    /// Changefeeds: delivery, completeness and cost
    Feeds(FeedsArgs),
    /// Terark's report on Wikipedia: rows of articles, their size on disk, and reads of them
    Wiki(WikiArgs),
    /// Make a file of rows for `wiki` from texts on this machine
    WikiRows(WikiRowsArgs),
    /// The cost of an echo server and of redis-server on this machine
    Baseline(BaselineArgs),
    /// The results in a folder as one page that works offline
    Report(ReportArgs),
}

/// The two phases of YCSB.
#[derive(Subcommand, Clone, Debug)]
pub enum YcsbArgs {
    /// Create the table and fill it with documents
    Load(LoadArgs),
    /// Run a workload against a loaded table
    Run(RunArgs),
}

/// Runs a command. The exit code says whether the measurement is valid.
pub fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    match args {
        BenchArgs::Ycsb(YcsbArgs::Load(args)) => ycsb_load::run(args),
        BenchArgs::Ycsb(YcsbArgs::Run(args)) => ycsb_run::run(args),
        BenchArgs::Analytic(args) => analytic::run(args),
        BenchArgs::Reql(args) => reql::run(&args),
        BenchArgs::Blocks(args) => blocks::run(args),
        BenchArgs::Sweep(args) => sweep::run(args),
        BenchArgs::Units(args) => units::run(args),
        BenchArgs::Hop(args) => hop::run(args),
        BenchArgs::Idle(args) => idle::run(args),
        BenchArgs::Feeds(args) => feeds::run(args),
        BenchArgs::Wiki(args) => wiki::run(&args),
        BenchArgs::WikiRows(args) => wiki_rows::run(&args),
        BenchArgs::Baseline(args) => baseline::run(args),
        BenchArgs::Report(args) => report::run(&args),
    }
}
