//! How the reader of a feed waits: on its thread, or by a waker.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;

use parking_lot::Mutex;

/// The kind of a feed, for drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedKind {
    /// A table or a range.
    Sequence,
    /// One document.
    Point,
    /// Several feeds of different kinds.
    Union,
}

/// The feeds of one query.
#[derive(Default)]
pub(crate) struct FeedPolling {
    kinds: Mutex<Vec<FeedKind>>,
    includes_states: AtomicBool,
    /// The feeds that still read initial values, which needs a thread.
    starting: AtomicUsize,
    /// Set while the reader must not wait: it is woken instead.
    waker: Mutex<Option<Waker>>,
}

impl FeedPolling {
    /// Adds a feed, which still has to read its initial values.
    pub fn add(&self, kind: FeedKind, includes_states: bool) {
        self.kinds.lock().push(kind);
        self.includes_states.fetch_or(includes_states, Ordering::Relaxed);
        self.starting.fetch_add(1, Ordering::AcqRel);
    }

    /// A feed has only changes left.
    pub fn set_started(&self) {
        self.starting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether there are feeds, and none of them needs a thread.
    pub fn is_live(&self) -> bool {
        !self.kinds.lock().is_empty() && self.starting.load(Ordering::Acquire) == 0
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
