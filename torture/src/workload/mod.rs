//! Writers that record their acknowledged writes, for the commands that inject faults under writes. Every write of a
//! document has a new version; [`ledger`] compares the stored versions with the recorded ones.

pub(crate) mod layout;
pub(crate) mod ledger;
pub(crate) mod writers;

use std::time::Duration;

/// The value at `share` of ascending values, rounded up.
pub(crate) fn quantile(sorted: &[Duration], share: f64) -> Duration {
    let nth = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(nth.saturating_sub(1)).copied().unwrap_or_default()
}
