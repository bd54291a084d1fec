//! Options of an index-build run.

use crate::harness::options::RunOptions;

/// A whole run.
#[derive(clap::Args)]
pub struct Options {
    /// Rows of the table
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) rows: u64,
    /// Kills in the middle of a build
    #[arg(long, default_value_t = 30)]
    pub(super) kills: u32,
    /// The longest time from the beginning of a build, or a start, to a kill, in milliseconds
    #[arg(long = "kill-after", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) kill_after_ms: u64,
    /// How often the writes are timed without and with a build
    #[arg(long, default_value_t = 5)]
    pub(super) pairs: u32,
    /// Fail above this ratio of slowest writes, instead of above the bar
    #[arg(long = "ratio")]
    pub(super) ratio_max: Option<f64>,
    /// Writers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) writers: u64,
    /// Writes of each writer in a second
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) rate: u64,
    #[command(flatten)]
    pub(super) trial: RunOptions,
}
