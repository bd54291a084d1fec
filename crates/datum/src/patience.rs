//! How long somebody waits for a walk through a value.
//!
//! Values share their parts, so that one of a few kilobytes can have more parts, each counted where it
//! occurs, than anybody can walk through. A comparison is a walk and cannot fail; so a thread that works for
//! somebody keeps that one's [`Watch`], and every walk looks at it once for many parts. When it is over, all
//! walks of the thread end at once **with any answer**: whoever keeps a watch asks it before using what came
//! out.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;

/// Who waits for what a thread does.
pub trait Watch: Send + Sync {
    /// Whether nobody waits any more. Once it says so it always does.
    fn is_over(&self) -> bool;

    /// A walk came so deep that it must end: nobody waits from now on.
    fn end_too_deep(&self);
}

/// A walk looks at the watch once for so many parts: some tenths of a millisecond.
const PARTS_PER_LOOK: usize = 1 << 16;

thread_local! {
    /// Parts to go until the watch is looked at.
    static LEFT: Cell<usize> = const { Cell::new(PARTS_PER_LOOK) };
    static WATCH: RefCell<Option<Arc<dyn Watch>>> = const { RefCell::new(None) };
}

/// The watch that this thread keeps.
#[must_use]
pub fn current() -> Option<Arc<dyn Watch>> {
    WATCH.with_borrow(Option::clone)
}

/// This thread keeps `watch` (or none, so that its walks are never ended) until the answer is dropped.
pub fn keep(watch: Option<Arc<dyn Watch>>) -> Kept {
    Kept { before: exchange(watch), this_thread: PhantomData }
}

fn exchange(watch: Option<Arc<dyn Watch>>) -> Option<Arc<dyn Watch>> {
    LEFT.set(PARTS_PER_LOOK);
    WATCH.replace(watch)
}

/// This thread keeps a watch as long as this lives.
#[must_use]
pub struct Kept {
    before: Option<Arc<dyn Watch>>,
    /// Belongs to the thread it was made on.
    this_thread: PhantomData<*const ()>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(exchange(self.before.take()));
    }
}

/// Whether a walk may go on through `parts` more parts of something.
#[inline]
#[must_use]
pub fn lasts(parts: usize) -> bool {
    LEFT.with(|left| match left.get().checked_sub(parts.saturating_add(1)) {
        Some(rest) => {
            left.set(rest);
            true
        }
        None => look(left),
    })
}

/// This thread's stack has grown as much as it may: its walks end if it keeps a watch.
#[cold]
pub(crate) fn too_deep() {
    WATCH.with_borrow(|watch| {
        if let Some(watch) = watch {
            watch.end_too_deep();
            LEFT.set(0);
        }
    });
}

#[cold]
fn look(left: &Cell<usize>) -> bool {
    let lasts = WATCH.with_borrow(|watch| watch.as_ref().is_none_or(|watch| !watch.is_over()));
    left.set(if lasts { PARTS_PER_LOOK } else { 0 });
    lasts
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::Datum;

    /// Is over when it was looked at so often.
    struct Looks(AtomicUsize);

    impl Watch for Looks {
        fn is_over(&self) -> bool {
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
        }

        fn end_too_deep(&self) {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// Two to the power of 200 leaves of two kinds, so that no two neighbours are the same value.
    fn endless() -> Datum {
        let leaf = Datum::from(vec![Datum::from(1), Datum::from(2)]);
        (0..200).fold(leaf, |value, _| Datum::from(vec![value.clone(), value]))
    }

    #[test]
    fn walks_that_nobody_waits_for_end() {
        let (a, b) = (endless(), endless());
        let kept = keep(Some(Arc::new(Looks(AtomicUsize::new(3)))));
        assert!(a == b, "any answer");
        let hash = |value: &Datum| {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(value)
        };
        hash(&a);
        let _ = a.json_size();
        let _ = a.has_longer_array(7);
        assert!(a.not_json().is_none() && !crate::pseudo::holds_literal(&a));
        drop(kept);
        assert!(Datum::from(vec![a.clone()]) == Datum::from(vec![a]), "the same parts are equal at once");
    }

    #[test]
    fn a_watch_is_kept_within_another() {
        let outer = keep(Some(Arc::new(Looks(AtomicUsize::new(0)))));
        assert!(!lasts(PARTS_PER_LOOK));
        let inner = keep(None);
        assert!(lasts(PARTS_PER_LOOK) && current().is_none());
        drop(inner);
        assert!(!lasts(PARTS_PER_LOOK) && current().is_some());
        drop(outer);
        assert!(lasts(PARTS_PER_LOOK));
    }
}
