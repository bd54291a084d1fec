//! `bench feeds`: changefeeds under a write load: time from commit to delivery, completeness, and what feeds cost.

mod churn;
mod delivery;
mod figures;
mod idle;
mod idleness;
mod load;
mod site;
mod slow;
mod table_feeds;
mod throughput;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::{Args, ValueEnum};

use crate::feeds::kind::FeedKind;
use crate::flags::{OutputFlags, ServerFlags};
use crate::fleet::flags::NodeFlags;
use crate::limits::{above_zero, at_least_one, seconds};
use crate::result::RunResult;
use site::Site;

/// One measurement, which has one result.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Time from commit to delivery, and completeness, with many feeds of which each write changes at most one
    Delivery,
    /// Memory and processor time of feeds without changes
    Idle,
    /// Memory after many feeds were opened and closed
    Churn,
    /// Feeds that are not read, and their effect on other clients
    Slow,
    /// Feeds of the whole table at a high rate of writes, and the cost of an event
    Throughput,
}

impl Measure {
    fn name(self) -> &'static str {
        match self {
            Measure::Delivery => "delivery",
            Measure::Idle => "idle",
            Measure::Churn => "churn",
            Measure::Slow => "slow",
            Measure::Throughput => "throughput",
        }
    }
}

/// Durability of the writes.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurabilityFlag {
    /// A write is acknowledged once it is on disk
    Hard,
    /// A write is acknowledged before that
    Soft,
}

impl DurabilityFlag {
    fn name(self) -> &'static str {
        match self {
            DurabilityFlag::Hard => "hard",
            DurabilityFlag::Soft => "soft",
        }
    }
}

/// Measures changefeeds
#[derive(Args, Clone, Debug)]
pub struct FeedsArgs {
    /// What to measure, one after the other, each with a new table (and new nodes, with --nodes)
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_values = ["delivery", "idle", "churn", "slow", "throughput"]
    )]
    measure: Vec<Measure>,
    /// Open feeds of `delivery` and `idle`
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = at_least_one::<u32>)]
    feeds: u32,
    /// Kinds of these feeds and of the feeds of `churn`, in equal parts
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_values = ["document", "range", "filter", "limit"]
    )]
    kinds: Vec<FeedKind>,
    /// Connections that share these feeds
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = at_least_one::<usize>)]
    feed_connections: usize,
    /// Writes a second of `delivery`, `idle` and `slow`
    #[arg(long, value_name = "RATE", default_value_t = 2_000.0, value_parser = above_zero)]
    writes_per_second: f64,
    /// One write in this many is of a row that a feed has
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one::<u64>)]
    match_every: u64,
    /// Length of each load, and of each wait without queries before memory is read
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, value_parser = above_zero)]
    seconds: f64,
    /// Feeds that `churn` opens and closes
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = at_least_one::<u64>)]
    opens: u64,
    /// Feeds that are not read, of `slow`; each has its own connection
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = at_least_one::<usize>)]
    slow_feeds: usize,
    /// Their changefeed_queue_size [default: that of the server]
    #[arg(long, value_name = "N", value_parser = at_least_one::<u64>)]
    slow_queue: Option<u64>,
    /// Writes a second of `throughput`
    #[arg(long, value_name = "RATE", default_value_t = 20_000.0, value_parser = above_zero)]
    throughput_rate: f64,
    /// Feeds of the whole table of which `throughput` computes the cost of an event
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one::<u32>)]
    table_feeds: u32,
    /// Of `throughput`, measure only writes of a table that never had a feed: to compare two programs
    #[arg(long)]
    no_feed: bool,
    /// Rows that no feed but one of the whole table has
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = at_least_one::<u64>)]
    other_rows: u64,
    /// Length of a text in each row, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    text_bytes: usize,
    /// Durability that writes ask for [default: that of the table]
    #[arg(long, value_enum)]
    durability: Option<DurabilityFlag>,
    /// Connections of the writes
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one::<usize>)]
    connections: usize,
    /// Writes in flight on each
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one::<u16>)]
    pipeline: u16,
    /// Shards of the table
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one::<u32>)]
    shards: u32,
    /// Replicas of each shard
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one::<u32>)]
    replicas: u32,
    /// Seconds after which missing changes are lost, if none arrives and the servers do nothing
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds)]
    drain: f64,
    /// Start so many nodes for each measurement, instead of connecting to --host
    #[arg(long, value_name = "N", value_parser = at_least_one::<u16>, conflicts_with_all = ["hosts", "port"])]
    nodes: Option<u16>,
    /// Temporary folder for the nodes' data
    #[arg(long, value_name = "FOLDER", default_value = "feeds-nodes")]
    folder: PathBuf,
    #[command(flatten)]
    fleet: NodeFlags,
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// Runs the measurements. The exit code says whether all changes were delivered once and all bars are held.
pub fn run(args: FeedsArgs) -> anyhow::Result<ExitCode> {
    check(&args)?;
    let mut is_held = true;
    for measure in &args.measure {
        if !args.output.quiet {
            eprintln!("feeds: measuring {}", measure.name());
        }
        let result = one(&args, *measure)?;
        // The result is written first: the reader of the output may have closed it.
        let code = args.output.finish(&result)?;
        is_held &= code == ExitCode::SUCCESS;
        is_held &= result.figures.iter().all(|figure| figure.ok != Some(false));
    }
    Ok(if is_held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check(args: &FeedsArgs) -> anyhow::Result<()> {
    let in_flight = args.connections as u64 * u64::from(args.pipeline);
    ensure!(
        args.other_rows > in_flight,
        "--other-rows {} is too small: each of the {in_flight} writes in flight needs another row (--connections, --pipeline)",
        args.other_rows
    );
    let is_one_file = args.output.json.as_ref().is_some_and(|path| {
        !path.is_dir() && !path.to_string_lossy().ends_with('/') && args.measure.len() > 1
    });
    ensure!(!is_one_file, "--json: each measurement has its own result: give a folder (ending in /)");
    let per_connection = args.feeds as usize / args.feed_connections;
    ensure!(
        per_connection < usize::from(u16::MAX),
        "--feeds {}: {per_connection} feeds on one connection are too many: give --feed-connections",
        args.feeds
    );
    args.nodes.map_or(Ok(()), |nodes| Ok(args.fleet.fit(usize::from(nodes))?))
}

fn one(args: &FeedsArgs, measure: Measure) -> anyhow::Result<RunResult> {
    let mut site = Site::start(args, measure)?;
    let outcome = match measure {
        Measure::Delivery => delivery::measure(&mut site),
        Measure::Idle => idle::measure(&mut site),
        Measure::Churn => churn::measure(&mut site),
        Measure::Slow => slow::measure(&mut site),
        Measure::Throughput => throughput::measure(&mut site),
    };
    site.end(outcome)
}

fn kind_names(kinds: &[FeedKind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(",")
}
