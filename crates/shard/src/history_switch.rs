//! Requests to switch the history of a group on.

use std::sync::atomic::{AtomicU64, Ordering};

/// The requests to switch the history of a group on.
///
/// From a request on, the leader adds rows as they were before to its entries, although the entry that switches the history
/// on is only proposed afterwards.
#[derive(Default)]
pub(crate) struct HistorySwitch {
    requests: AtomicU64,
    // The request whose entry may not be applied yet; 0 for none.
    pending: AtomicU64,
}

impl HistorySwitch {
    /// Notes another request.
    pub(crate) fn begin(&self) {
        let request = self.requests.fetch_add(1, Ordering::AcqRel) + 1;
        self.pending.store(request, Ordering::Release);
    }

    /// Whether entries need the rows before their changes. `is_on`: whether the history is on, as far as it is applied.
    pub(crate) fn wants_old_rows(&self, is_on: impl FnOnce() -> bool) -> bool {
        let pending = self.pending.load(Ordering::Acquire);
        let is_on = is_on();
        if is_on && pending != 0 {
            // Its entry is applied. A later request stays.
            let _ = self.pending.compare_exchange(pending, 0, Ordering::AcqRel, Ordering::Acquire);
        }
        is_on || pending != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_before_changes_are_wanted_from_the_request_on() {
        let switch = HistorySwitch::default();
        assert!(!switch.wants_old_rows(|| false));
        switch.begin();
        assert!(switch.wants_old_rows(|| false), "the entry is on its way");
        assert!(switch.wants_old_rows(|| true), "the entry is applied");
        assert!(!switch.wants_old_rows(|| false), "the history was switched off");
        switch.begin();
        let overtaken = || {
            switch.begin();
            true
        };
        assert!(switch.wants_old_rows(overtaken));
        assert!(switch.wants_old_rows(|| false), "the second request stays");
    }
}
