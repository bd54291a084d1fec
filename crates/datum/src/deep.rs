//! Extends the stack for values nested deeper than a thread's own stack allows.

use std::cell::Cell;

use crate::cancel;

/// Stack that must remain before another level is entered.
const RED_ZONE_BYTES: usize = 96 << 10;
/// Stack added each time the red zone is reached.
const SEGMENT_BYTES: usize = 1 << 20;
/// Most segments of one thread, enough for more than a million levels. Beyond this, cancellable walks are ended.
const SEGMENTS_MAX: usize = 512;

thread_local! {
    static SEGMENTS: Cell<usize> = const { Cell::new(0) };
}

/// Runs `level`, one level of a walk over a nested value, on a new segment of stack if little is left. Costs one
/// thread-local read if there is enough. A thread with very many segments cancels its [`cancel::CancelToken`],
/// which ends the walk.
#[inline]
pub fn level<R>(level: impl FnOnce() -> R) -> R {
    if has_stack() { level() } else { on_new_segment(level) }
}

/// Whether the current segment has room for another level.
#[inline]
pub(crate) fn has_stack() -> bool {
    stacker::remaining_stack().is_some_and(|left| left >= RED_ZONE_BYTES)
}

#[cold]
fn on_new_segment<R>(level: impl FnOnce() -> R) -> R {
    let segment = Segment::begin();
    if segment.number > SEGMENTS_MAX {
        cancel::stop_walks();
    }
    stacker::grow(SEGMENT_BYTES, level)
}

/// A segment of stack, in use until this is dropped.
struct Segment {
    /// The number of segments of this thread, including this one.
    number: usize,
}

impl Segment {
    fn begin() -> Segment {
        let number = SEGMENTS.get() + 1;
        SEGMENTS.set(number);
        Segment { number }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        SEGMENTS.set(self.number - 1);
    }
}
