//! Writers that note what was acknowledged to them, for the commands that fail nodes under writes: each document has
//! versions, and [`ledger`] compares the table with what every writer knows.

pub(crate) mod ledger;
pub(crate) mod writers;

use std::time::Duration;

/// The value at `share` of ascending values, rounded up.
pub(crate) fn quantile(sorted: &[Duration], share: f64) -> Duration {
    let nth = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(nth.saturating_sub(1)).copied().unwrap_or_default()
}
