//! The number of rows of a table that were read and written on this server since it was started.
//!
//! All shards of the table share the counters, so that they continue when the table is resharded.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of one table. Every reader and writer of rows adds to them.
#[derive(Debug, Default)]
pub struct Activity {
    read: AtomicU64,
    written: AtomicU64,
}

impl Activity {
    /// Counts `rows` rows as read.
    pub fn add_read(&self, rows: usize) {
        self.read.fetch_add(rows as u64, Relaxed);
    }

    /// Counts `rows` rows as written.
    pub fn add_written(&self, rows: usize) {
        self.written.fetch_add(rows as u64, Relaxed);
    }

    /// Rows read so far.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Rows written so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }
}
