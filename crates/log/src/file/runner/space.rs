//! A disk that is full: since when, and whether it still is.

use io::Nanos;

use super::Runner;
use crate::error::{Doubt, Refusal};
use crate::store::{Store, StoreError};

impl<S: Store> Runner<S> {
    /// Begins a new segment, if the last one has grown enough.
    pub(super) fn make_room(&mut self) -> Result<(), Refusal> {
        // A new segment begins with an fsync of the old one, and there may be only one at a
        // time. The segment just grows a little longer until then.
        if self.sync_running {
            return Ok(());
        }
        match self.store.make_room() {
            Ok(()) => Ok(()),
            Err(StoreError::Full) => {
                self.found_full();
                Err(Refusal::Full)
            }
            Err(StoreError::Disk(cause)) => {
                self.fail(&Doubt::Disk(cause.to_string()));
                Err(Refusal::Stopped)
            }
        }
    }

    pub(super) fn found_full(&mut self) {
        let now = self.outside.clock.now();
        self.full_tried_at = Some(now);
        self.full_since.get_or_insert(now);
    }

    pub(super) fn found_space(&mut self) {
        (self.full_since, self.full_tried_at) = (None, None);
    }

    /// Since when the disk is full, if it is.
    pub fn full_since(&self) -> Option<Nanos> {
        self.full_since
    }

    /// Looks whether there is space again.
    pub(super) fn try_again(&mut self) {
        self.full_tried_at = Some(self.outside.clock.now());
        if self.store.pushed_bytes() > 0 {
            self.append();
        // While an fsync is under way no segment can be begun, so that nothing is found out.
        } else if !self.sync_running && self.make_room().is_ok() {
            self.found_space();
        }
    }
}
