//! The copies of replicas' rows that a node gives and gets at this moment.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use io::Nanos;
use log::GroupId;
use parking_lot::Mutex;
use shard::CopyRangeSizes;
use storage::TableSnapshot;

use crate::config::ServerId;

/// The copies that this node gives, and the groups it is getting.
#[derive(Default)]
pub(crate) struct CopyState {
    pub(crate) sizes: Mutex<CopyChunking>,
    pub(crate) given: Mutex<HashMap<u64, Given>>,
    pub(crate) getting: Mutex<HashMap<GroupId, CopyProgress>>,
    /// When the last copy of a group was complete here.
    pub(crate) got: Mutex<HashMap<GroupId, Instant>>,
    pub(crate) pace: Mutex<Pace>,
}

/// Bytes of rows that one node gets each second, all its copies together: they leave room for clients.
const BYTES_PER_SECOND: u64 = 64 << 20;

/// A byte of a row that is there already, and only compared, costs this part of one that comes.
const COMPARED_COST: u64 = 8;

/// What a piece of a copy costs: `sent` bytes came, rows of `compared` bytes were there.
pub(crate) fn cost(sent: u64, compared: u64) -> u64 {
    sent + compared / COMPARED_COST
}

/// Spreads what copies take over time.
#[derive(Default)]
pub(crate) struct Pace {
    // When everything taken so far is paid for.
    free_at: Nanos,
}

impl Pace {
    /// Takes `bytes`; how long to wait before more may be taken.
    pub(crate) fn take(&mut self, bytes: u64, now: Nanos) -> Duration {
        let cost = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / BYTES_PER_SECOND);
        // Time in which nothing was taken is not saved up.
        self.free_at = self.free_at.max(now).after(cost);
        self.free_at.since(now)
    }
}

/// In what pieces copies come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyChunking {
    /// Bytes of rows in one answer.
    pub piece_bytes: usize,
    /// Into what stretches rows are divided that are there already.
    pub copy_ranges: CopyRangeSizes,
}

impl Default for CopyChunking {
    fn default() -> CopyChunking {
        // What is there is told in one request as far as about two answers go.
        CopyChunking { piece_bytes: 1 << 20, copy_ranges: CopyRangeSizes { bytes: 64 << 10, count: 32 } }
    }
}

/// A copy that is being given.
pub(crate) struct Given {
    pub(crate) snapshot: TableSnapshot,
    /// When it was last asked for.
    pub(crate) used: Instant,
}

/// How far a copy has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyProgress {
    /// Where the rows come from; nobody at first.
    pub source: Option<ServerId>,
    /// When it began.
    pub begun: Nanos,
    /// Rows that are as in the copy.
    pub rows: u64,
    /// Rows there will be, about.
    pub rows_total: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Nanos {
        Nanos(n * 1_000_000_000)
    }

    #[test]
    fn copies_together_keep_to_the_rate() {
        let mut pace = Pace::default();
        assert_eq!(pace.take(BYTES_PER_SECOND, second(5)), Duration::from_secs(1));
        assert_eq!(
            pace.take(2 * BYTES_PER_SECOND, second(5)),
            Duration::from_secs(3),
            "two at once share it"
        );
        assert_eq!(pace.take(0, second(8)), Duration::ZERO);
        assert_eq!(pace.take(BYTES_PER_SECOND / 2, second(60)), Duration::from_millis(500));
    }
}
