//! Options of a reshard run.

use crate::harness::options::RunOptions;

/// The changes, the load, and the bars.
#[derive(clap::Args)]
pub struct Options {
    /// For how long changes are made
    #[arg(long, default_value_t = 10.0, value_parser = above_zero)]
    pub(super) minutes: f64,
    /// Seconds from the beginning of one change to that of the next
    #[arg(long, default_value_t = 5.0, value_parser = above_zero)]
    pub(super) every: f64,
    /// Nodes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(3..=9))]
    pub(super) nodes: u16,
    /// Writers
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) writers: u16,
    /// Readers
    #[arg(long, default_value_t = 4)]
    pub(super) readers: u16,
    /// Read-only rows
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rows: u32,
    /// Most shards
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(2..))]
    pub(super) shards: u16,
    /// The longest write in milliseconds in 99 of 100 changes
    #[arg(long, default_value_t = 1000)]
    pub(super) pause_ms: u64,
    #[command(flatten)]
    pub(super) trial: RunOptions,
}

fn above_zero(word: &str) -> Result<f64, String> {
    let number: f64 = word.parse().map_err(|_| "it is not a number".to_owned())?;
    match number > 0.0 && number.is_finite() {
        true => Ok(number),
        false => Err("it must be more than zero".to_owned()),
    }
}
