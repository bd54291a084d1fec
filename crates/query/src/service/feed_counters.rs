//! Kinds and numbers of the changefeeds of a node's clients.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The kind of a feed, for drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedKind {
    /// A table or a range.
    Sequence,
    /// One document.
    Point,
    /// The first rows of an order.
    FirstRows,
    /// Aggregates of rows, or their distinct values.
    Aggregate,
    /// Pairs of rows of two tables.
    Join,
    /// Several feeds of different kinds.
    Union,
}

impl FeedKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [FeedKind; 6] = [
        FeedKind::Sequence,
        FeedKind::Point,
        FeedKind::FirstRows,
        FeedKind::Aggregate,
        FeedKind::Join,
        FeedKind::Union,
    ];

    /// The name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FeedKind::Sequence => "sequence",
            FeedKind::Point => "point",
            FeedKind::FirstRows => "first_rows",
            FeedKind::Aggregate => "aggregate",
            FeedKind::Join => "join",
            FeedKind::Union => "union",
        }
    }
}

/// Numbers of the changefeeds of a node's clients since the process started.
#[derive(Debug, Default)]
pub struct FeedCounters {
    open: [AtomicU64; FeedKind::ALL.len()],
    /// The queues of feeds that wait for their clients.
    pub(crate) queues: AtomicU64,
    /// Times that a queue became too long, so that its changes were dropped.
    pub overflows: AtomicU64,
    /// The changes that were dropped.
    pub skipped: AtomicU64,
    /// Feeds that continued after a token.
    pub resumes: AtomicU64,
}

impl FeedCounters {
    /// The open feeds of one kind. Each part of a union is one.
    #[must_use]
    pub fn open(&self, kind: FeedKind) -> u64 {
        self.open[kind as usize].load(Relaxed)
    }

    pub(super) fn opened(&self, kind: FeedKind) {
        self.open[kind as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn closed(&self, kind: FeedKind) {
        self.open[kind as usize].fetch_sub(1, Relaxed);
    }
}
