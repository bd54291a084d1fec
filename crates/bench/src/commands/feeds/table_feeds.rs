//! A load while feeds of the whole table are read.

use serde_json::json;

use super::figures::lag_seconds;
use super::load::{Followed, Load, LoadShape};
use super::site::Site;
use crate::feeds::checker::{Tally, check};
use crate::feeds::kind::FeedKind;
use crate::feeds::subscribers::Seen;
use crate::feeds::writes::SharedLedger;

/// A load and the events of its feeds.
pub(super) struct Part {
    pub(super) load: Load,
    pub(super) tallies: Vec<(FeedKind, Tally)>,
    pub(super) seen: Seen,
    pub(super) lag_seconds: f64,
}

/// Writes at `rate` while `count` feeds of the table are read, each on its own connection.
pub(super) fn write_with(
    site: &Site<'_>,
    ledger: &SharedLedger,
    count: u32,
    rate: f64,
) -> anyhow::Result<Part> {
    let kinds = vec![FeedKind::Table; count as usize];
    let first = ledger.len();
    let feeds = Followed::start(site.open(&kinds, kinds.len(), &json!({}), true)?)?;
    let followed = Some((&feeds, u64::from(count)));
    let load = site.load(ledger, LoadShape { rate, match_every: 0, followed })?;
    let seen = feeds.end()?;
    let written = ledger.written_since(first);
    let lag_seconds = lag_seconds(&written, &seen);
    Ok(Part { tallies: check(&kinds, &written, &seen.arrivals), load, seen, lag_seconds })
}
