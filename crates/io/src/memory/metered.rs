//! An allocator that knows how much each thread has allocated more than it has freed.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    /// Bytes this thread has allocated, less those it has freed. Without a destructor, so that the
    /// allocator may use it at any moment of a thread's life.
    static NET: Cell<i64> = const { Cell::new(0) };
}

/// Counts what `A` takes, thread by thread: one addition per call.
#[derive(Debug, Default)]
pub struct Metered<A>(pub A);

/// Bytes this thread has allocated, less those it has freed, whoever allocated them.
pub(super) fn net() -> i64 {
    NET.get()
}

fn count(bytes: usize) {
    NET.set(NET.get().wrapping_add(taken(bytes) as i64));
}

fn discount(bytes: usize) {
    NET.set(NET.get().wrapping_sub(taken(bytes) as i64));
}

/// What an allocator takes for `bytes`: most keep four sizes between one power of two and the next, and none
/// below sixteen bytes (jemalloc(3), size classes).
fn taken(bytes: usize) -> usize {
    let below = bytes.saturating_sub(1);
    let step = (1_usize << below.max(64).ilog2()) / 4;
    // A size near the end of the address space is refused by the allocator.
    (below | (step - 1)).wrapping_add(1)
}

// SAFETY: every call goes to `A` as it came and its answer is returned as it is, so that `A`, which
// is a `GlobalAlloc`, upholds the contract. Counting allocates nothing.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Metered<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        discount(layout.size());
        // SAFETY: the caller upholds the contract of `dealloc`; `at` came from `A`.
        unsafe { self.0.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        discount(layout.size());
        // SAFETY: the caller upholds the contract of `realloc`; `at` came from `A`.
        unsafe { self.0.realloc(at, layout, new_size) }
    }
}
