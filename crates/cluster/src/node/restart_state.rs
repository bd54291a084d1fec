//! Whether the catalog has caught up with the version that this node acted on before its restart.
//!
//! After a crash the catalog may be older: its rows are in the state that was durable in the engine, until the log has
//! been applied again. The node acts on an entry of the catalog only after the entry is in its log. So the catalog has
//! caught up once it has applied the log up to the end that it had at the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use log::{Log, Lsn};

use crate::config::CATALOG_GROUP;

/// How far the catalog has caught up since the start.
pub(super) struct RestartState {
    log: Arc<dyn Log>,
    /// The end of the catalog's log at the start.
    catalog_end: Lsn,
    is_caught_up: AtomicBool,
    is_shown: AtomicBool,
}

impl RestartState {
    pub(super) fn new(log: Arc<dyn Log>, catalog_end: Lsn) -> RestartState {
        RestartState {
            log,
            catalog_end,
            is_caught_up: AtomicBool::new(false),
            is_shown: AtomicBool::new(false),
        }
    }

    /// Whether the applied catalog has caught up, as far as it was checked. Once it has, it always has.
    pub(super) fn is_caught_up(&self) -> bool {
        self.is_caught_up.load(Ordering::Acquire)
    }

    /// Checks whether the applied catalog has caught up. To be called before the catalog's rows are read.
    pub(super) fn check(&self) -> bool {
        if self.is_caught_up() {
            return true;
        }
        let Ok(status) = self.log.group_status(CATALOG_GROUP) else { return false };
        // If the log was truncated below that end, the lost entries were not committed, so this node has not acted on them.
        let is_caught_up = !status.needs_rows && status.applied >= self.catalog_end.min(status.last);
        self.is_caught_up.store(is_caught_up, Ordering::Release);
        is_caught_up
    }

    #[cfg(test)]
    pub(super) fn set_caught_up(&self, is_caught_up: bool) {
        self.is_caught_up.store(is_caught_up, Ordering::Release);
    }

    /// Whether the catalog that this node shows has caught up.
    pub(super) fn is_shown(&self) -> bool {
        self.is_shown.load(Ordering::Acquire)
    }

    /// Records that this node shows a new version, which has caught up if `is_caught_up`.
    pub(super) fn set_shown(&self, is_caught_up: bool) {
        self.is_shown.fetch_or(is_caught_up, Ordering::AcqRel);
    }
}
