//! How many rows of a table were read and written on this server since it was started.
//!
//! All shards of the table count in the same place, so that the figures go on when it is divided anew.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of one table; whoever reads or writes its rows adds to them.
#[derive(Debug, Default)]
pub struct Activity {
    read: AtomicU64,
    written: AtomicU64,
}

impl Activity {
    /// So many rows more were read.
    pub fn add_read(&self, rows: usize) {
        self.read.fetch_add(rows as u64, Relaxed);
    }

    /// So many rows more were written.
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
