//! An allocator that counts, per thread, the bytes allocated minus the bytes freed.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    /// Bytes this thread has allocated, minus those it has freed. Has no destructor, so that the allocator may use it
    /// at any moment of a thread's life.
    static NET: Cell<i64> = const { Cell::new(0) };
}

/// Counts the allocations of `A` per thread: one addition per call.
#[derive(Debug, Default)]
pub struct Metered<A>(pub A);

/// Bytes this thread has allocated, minus those it has freed, including memory that other threads allocated.
pub(super) fn net() -> i64 {
    NET.get()
}

fn count(bytes: usize) {
    NET.set(NET.get().wrapping_add(taken(bytes) as i64));
}

fn discount(bytes: usize) {
    NET.set(NET.get().wrapping_sub(taken(bytes) as i64));
}

/// The bytes that an allocator uses for a request of `bytes`: most have four size classes between one power of two and
/// the next, and none below sixteen bytes (jemalloc(3), size classes).
fn taken(bytes: usize) -> usize {
    let below = bytes.saturating_sub(1);
    let step = (1_usize << below.max(64).ilog2()) / 4;
    // The allocator refuses a size near the end of the address space.
    (below | (step - 1)).wrapping_add(1)
}

// SAFETY: every call is passed to `A` unchanged, and its result is returned unchanged, so that `A`, which is a
// `GlobalAlloc`, upholds the contract. Counting does not allocate.
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
