//! How the reader of a feed waits: on its thread, or by a waker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Instant;

use io::task;
use parking_lot::Mutex;
use reql::EvalError;

use super::feed_counters::{FeedCounters, FeedKind};

/// The most feeds that one connection may have open. Each part of a union is one.
pub(crate) const CONNECTION_FEEDS_MAX: usize = 20_000;

/// The feeds of one query.
#[derive(Default)]
pub(crate) struct FeedPolling {
    /// The number of feeds that the connection has open.
    of_connection: Arc<AtomicUsize>,
    counters: Arc<FeedCounters>,
    kinds: Mutex<Vec<FeedKind>>,
    includes_states: AtomicBool,
    /// The feeds that read rows, which needs a thread.
    reading: AtomicUsize,
    /// Whether the present reader is on a thread that may block.
    may_block: AtomicBool,
    /// From when on readers should stop, so that a batch with elements is sent.
    stop_at: Mutex<Option<Instant>>,
    /// Set while the reader must not wait: it is woken instead.
    waker: Mutex<Option<Waker>>,
}

impl FeedPolling {
    /// No feeds yet. They will be counted in `of_connection` while they are open.
    pub fn new(of_connection: Arc<AtomicUsize>, counters: Arc<FeedCounters>) -> FeedPolling {
        let mut polling = FeedPolling::default();
        (polling.of_connection, polling.counters) = (of_connection, counters);
        polling
    }

    /// Adds a feed, which still has to read its initial values. Fails if the connection has too many.
    pub fn add(&self, kind: FeedKind, includes_states: bool) -> Result<(), EvalError> {
        if self.of_connection.fetch_add(1, Ordering::Relaxed) >= CONNECTION_FEEDS_MAX {
            self.of_connection.fetch_sub(1, Ordering::Relaxed);
            return Err(EvalError::resource(format!(
                "The connection has {CONNECTION_FEEDS_MAX} open changefeeds, which is the most that one may have. Close some of \
                 them, or open another connection."
            )));
        }
        self.counters.opened(kind);
        self.kinds.lock().push(kind);
        self.includes_states.fetch_or(includes_states, Ordering::Relaxed);
        self.reading.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// The feeds are closed: they do not count any more.
    pub fn close(&self) {
        for kind in self.kinds.lock().drain(..) {
            self.of_connection.fetch_sub(1, Ordering::Relaxed);
            self.counters.closed(kind);
        }
    }

    /// A feed has to read rows once more.
    pub fn set_reading(&self) {
        self.reading.fetch_add(1, Ordering::AcqRel);
    }

    /// A feed has only changes left.
    pub fn set_started(&self) {
        self.reading.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether there are feeds, and none of them needs a thread.
    pub fn is_live(&self) -> bool {
        !self.kinds.lock().is_empty() && self.reading.load(Ordering::Acquire) == 0
    }

    /// The kind of all feeds together, and whether they report states; `None` if there is no feed.
    pub fn kind(&self) -> Option<(FeedKind, bool)> {
        let kinds = self.kinds.lock();
        let first = *kinds.first()?;
        let kind = if kinds.iter().all(|kind| *kind == first) { first } else { FeedKind::Union };
        Some((kind, self.includes_states.load(Ordering::Relaxed)))
    }

    /// Makes readers fail with [`reql::EvalError::not_ready`] instead of waiting, and wake `waker` later; `None` makes them wait.
    pub fn set_waker(&self, waker: Option<Waker>) {
        *self.waker.lock() = waker;
    }

    /// Makes readers fail with [`reql::EvalError::not_ready`] from `at` on, whether they have elements or not; `None` ends that.
    pub fn stop_at(&self, at: Option<Instant>) {
        *self.stop_at.lock() = at;
    }

    /// Whether readers should stop.
    pub fn is_stopped(&self) -> bool {
        self.stop_at.lock().is_some_and(|at| task::now() >= at)
    }

    /// Says whether the reader is on a thread that may block.
    pub fn set_may_block(&self, may_block: bool) {
        self.may_block.store(may_block, Ordering::Release);
    }

    /// Whether the reader may block for a while to read rows: always while it has no waker.
    pub fn may_block(&self) -> bool {
        self.may_block.load(Ordering::Acquire) || self.waker.lock().is_none()
    }

    /// The waker, if readers must not wait.
    pub fn waker(&self) -> Option<Waker> {
        self.waker.lock().clone()
    }

    /// Wakes the reader, because the query was stopped.
    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
    }
}

impl Drop for FeedPolling {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_may_have_so_many_feeds_and_no_more() {
        let (of_connection, counters) = (Arc::<AtomicUsize>::default(), Arc::<FeedCounters>::default());
        let query = || FeedPolling::new(of_connection.clone(), counters.clone());
        let many = query();
        for _ in 1..CONNECTION_FEEDS_MAX {
            many.add(FeedKind::Sequence, false).unwrap();
        }
        let last = query();
        last.add(FeedKind::Point, false).unwrap();
        let error = last.add(FeedKind::Point, false).unwrap_err();
        assert!(error.message().starts_with("The connection has 20000 open changefeeds"), "{error:?}");
        assert_eq!(counters.open(FeedKind::Point), 1);
        drop(last);
        assert_eq!(counters.open(FeedKind::Point), 0);
        query().add(FeedKind::FirstRows, false).unwrap();
        many.close();
        assert_eq!((of_connection.load(Ordering::Relaxed), counters.open(FeedKind::Sequence)), (0, 0));
    }
}
