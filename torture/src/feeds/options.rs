//! Options of a run with feeds.

use clap::ValueEnum;

use crate::harness::options::RunOptions;

/// The load, the faults, and the first rows that are compared after each change.
#[derive(clap::Args)]
pub struct Options {
    /// Changes of documents
    #[arg(long, default_value_t = 1_000_000)]
    pub(super) changes: u64,
    /// Feeds that are open at the same time
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) feeds: u32,
    /// How often the leader of a shard is killed
    #[arg(long, default_value_t = 50)]
    pub(super) kills: u32,
    /// How often a server with feeds is stopped and started again
    #[arg(long, default_value_t = 50)]
    pub(super) restarts: u32,
    /// How often a shard is split, merged or moved
    #[arg(long, default_value_t = 50)]
    pub(super) reshards: u32,
    /// Moments without writes, at which all feeds are compared with the table
    #[arg(long, default_value_t = 1000)]
    pub(super) rests: u32,
    /// Writers
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(super) writers: u32,
    /// Changes of the table whose first rows are compared after each
    #[arg(long, default_value_t = 100_000)]
    pub(super) first_rows_changes: u32,
    /// Make fewer changes, so that all of it takes about this many seconds
    #[arg(long)]
    pub(super) seconds: Option<u64>,
    /// Falsify what feeds deliver; succeeds only if the check notices
    #[arg(long)]
    pub(super) mutant: Option<Mutant>,
    /// The program delivers wrong elements: succeeds only if the check notices
    #[arg(long)]
    pub(super) expect_faults: bool,
    #[command(flatten)]
    pub(super) trial: RunOptions,
}

/// What happens to some elements on their way to the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Mutant {
    /// An element is lost.
    Drop,
    /// An element comes twice.
    Repeat,
    /// An element comes after the next one.
    Swap,
    /// An element shows a row that was refused.
    Refused,
    /// A feed is resumed after an earlier element than the last.
    Token,
}
