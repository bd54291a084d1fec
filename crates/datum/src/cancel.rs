//! Cancels long walks through values.
//!
//! Values share their parts. A value of a few kilobytes may contain one part so many times that a walk through all
//! of it would never end. A comparison is such a walk and cannot fail. A thread therefore has at most one current
//! [`CancelToken`], set with [`scope`], and every walk polls it after some number of parts. When the token
//! is cancelled, all walks of the thread end at once **with an arbitrary result**: the code that set the token
//! checks it before it uses a result.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;

/// Tells a thread whether its present work is cancelled.
pub trait CancelToken: Send + Sync {
    /// Whether the work is cancelled. Once true, always true.
    fn is_cancelled(&self) -> bool;

    /// Cancels the work because a walk went deeper than the stack may grow.
    fn cancel_too_deep(&self);
}

/// Parts that walks visit between two polls of the token: some tenths of a millisecond.
const PARTS_PER_POLL: usize = 1 << 16;

thread_local! {
    /// Parts to visit before the next poll.
    static PARTS_LEFT: Cell<usize> = const { Cell::new(PARTS_PER_POLL) };
    static TOKEN: RefCell<Option<Arc<dyn CancelToken>>> = const { RefCell::new(None) };
}

/// The current token of this thread.
#[must_use]
pub fn current() -> Option<Arc<dyn CancelToken>> {
    TOKEN.with_borrow(Option::clone)
}

/// Makes `token` this thread's current token until the returned guard is dropped. With `None`, walks inside
/// the scope are never ended.
pub fn scope(token: Option<Arc<dyn CancelToken>>) -> CancelScope {
    CancelScope { outer: exchange(token), this_thread: PhantomData }
}

fn exchange(token: Option<Arc<dyn CancelToken>>) -> Option<Arc<dyn CancelToken>> {
    PARTS_LEFT.set(PARTS_PER_POLL);
    TOKEN.replace(token)
}

/// Guard of [`scope`]: restores the previous token when it is dropped.
#[must_use]
pub struct CancelScope {
    outer: Option<Arc<dyn CancelToken>>,
    /// Keeps the guard on the thread that made it.
    this_thread: PhantomData<*const ()>,
}

impl Drop for CancelScope {
    fn drop(&mut self) {
        drop(exchange(self.outer.take()));
    }
}

/// Whether a walk may go on through `parts` more parts of a value.
#[inline]
#[must_use]
pub fn may_continue(parts: usize) -> bool {
    PARTS_LEFT.with(|left| match left.get().checked_sub(parts.saturating_add(1)) {
        Some(rest) => {
            left.set(rest);
            true
        }
        None => poll(left),
    })
}

/// Cancels this thread's work because its stack has reached the limit. Does nothing without a current token.
#[cold]
pub(crate) fn stop_walks() {
    TOKEN.with_borrow(|token| {
        if let Some(token) = token {
            token.cancel_too_deep();
            PARTS_LEFT.set(0);
        }
    });
}

#[cold]
fn poll(left: &Cell<usize>) -> bool {
    let may_continue = TOKEN.with_borrow(|token| token.as_ref().is_none_or(|token| !token.is_cancelled()));
    left.set(if may_continue { PARTS_PER_POLL } else { 0 });
    may_continue
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::Datum;

    /// Is cancelled after this many polls.
    struct CancelledAfter(AtomicUsize);

    impl CancelToken for CancelledAfter {
        fn is_cancelled(&self) -> bool {
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
        }

        fn cancel_too_deep(&self) {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// Two to the power of 200 leaves of two kinds, so that no two neighbours are the same value.
    fn endless() -> Datum {
        let leaf = Datum::from(vec![Datum::from(1), Datum::from(2)]);
        (0..200).fold(leaf, |value, _| Datum::from(vec![value.clone(), value]))
    }

    #[test]
    fn cancelled_walks_end() {
        let (a, b) = (endless(), endless());
        let cancel_scope = scope(Some(Arc::new(CancelledAfter(AtomicUsize::new(3)))));
        assert!(a == b, "any answer");
        let hash = |value: &Datum| {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(value)
        };
        hash(&a);
        let _ = a.json_size();
        let _ = a.has_longer_array(7);
        assert!(a.not_json().is_none() && !crate::pseudo::holds_literal(&a));
        drop(cancel_scope);
        assert!(Datum::from(vec![a.clone()]) == Datum::from(vec![a]), "the same parts are equal at once");
    }

    #[test]
    fn scopes_nest() {
        let outer = scope(Some(Arc::new(CancelledAfter(AtomicUsize::new(0)))));
        assert!(!may_continue(PARTS_PER_POLL));
        let inner = scope(None);
        assert!(may_continue(PARTS_PER_POLL) && current().is_none());
        drop(inner);
        assert!(!may_continue(PARTS_PER_POLL) && current().is_some());
        drop(outer);
        assert!(may_continue(PARTS_PER_POLL));
    }
}
