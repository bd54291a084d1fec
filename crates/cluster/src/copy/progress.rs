//! The state of the copies that a node sends and receives: snapshots, progress, and the rate limit.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use io::Nanos;
use log::GroupId;
use shard::CopyRangeSizes;
use storage::TableSnapshot;

use super::attempts::Attempts;
use crate::config::ServerId;
use crate::locks::BriefMutex;

/// The copies that this node sends and receives.
#[derive(Default)]
pub(crate) struct CopyState {
    pub(super) sizes: BriefMutex<CopyChunking>,
    pub(super) outgoing: BriefMutex<HashMap<u64, OutgoingCopy>>,
    pub(super) incoming: BriefMutex<HashMap<GroupId, CopyProgress>>,
    /// When the last copy of a group was completed here.
    pub(super) completed_at: BriefMutex<HashMap<GroupId, Instant>>,
    pub(super) pace: BriefMutex<Pace>,
    pub(super) attempts: Attempts,
}

/// Bytes of rows that a node receives each second in all its copies together, so that they leave capacity for clients.
const BYTES_PER_SECOND: u64 = 64 << 20;

/// How many bytes of rows that are only compared cost as much as one received byte.
const COMPARED_BYTES_PER_RECEIVED: u64 = 8;

/// The cost of a chunk of a copy, in bytes: `received` bytes, and rows of `compared` bytes that were there already.
pub(crate) fn cost(received: u64, compared: u64) -> u64 {
    received + compared / COMPARED_BYTES_PER_RECEIVED
}

/// The rate limit of copies.
#[derive(Default)]
pub(crate) struct Pace {
    // When the rate allows the next chunk.
    free_at: Nanos,
}

impl Pace {
    /// Takes `bytes`. Returns how long to wait before the next call.
    pub(crate) fn take(&mut self, bytes: u64, now: Nanos) -> Duration {
        let cost = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / BYTES_PER_SECOND);
        // Idle time is not saved up.
        self.free_at = self.free_at.max(now).after(cost);
        self.free_at.since(now)
    }
}

/// The sizes in which copies are sent and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyChunking {
    /// Bytes of rows in one response.
    pub chunk_bytes: usize,
    /// The ranges in which the rows of the receiver are compared.
    pub copy_ranges: CopyRangeSizes,
}

impl Default for CopyChunking {
    fn default() -> CopyChunking {
        // The ranges of one request cover the rows of about two responses.
        CopyChunking { chunk_bytes: 1 << 20, copy_ranges: CopyRangeSizes { bytes: 64 << 10, count: 32 } }
    }
}

/// A copy that this node sends.
pub(crate) struct OutgoingCopy {
    pub(crate) snapshot: TableSnapshot,
    /// The time of the last request for it.
    pub(crate) used: Instant,
}

/// The progress of a copy that this node receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyProgress {
    /// The server that sends the rows; `None` until it is found.
    pub source: Option<ServerId>,
    /// The start of the copy.
    pub started: Nanos,
    /// Rows that are as in the source.
    pub rows: u64,
    /// About how many rows there will be.
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
