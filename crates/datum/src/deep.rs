//! Stack for values nested deeper than a thread's own stack allows.

use std::cell::Cell;

use crate::cancel;

/// Stack that must be left before another level is entered.
const RED_ZONE_BYTES: usize = 96 << 10;
/// Stack added each time the red zone is reached.
const SEGMENT_BYTES: usize = 1 << 20;
/// Segments of one thread beyond which the walks that somebody waits for are ended: for a million levels and more.
const SEGMENTS_MAX: usize = 512;

thread_local! {
    static SEGMENTS: Cell<usize> = const { Cell::new(0) };
}

/// Runs `level`, one level of a walk over something nested, on a new piece of stack when little is
/// left. Costs one thread-local read when there is enough. A thread that has got very many pieces tells
/// its [`cancel::CancelToken`], which ends the walk.
#[inline]
pub fn level<R>(level: impl FnOnce() -> R) -> R {
    if has_stack() { level() } else { on_new_segment(level) }
}

/// Whether another level may be entered on the present piece of stack.
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

/// A piece of stack that is in use as long as this lives.
struct Segment {
    /// How many there are with it.
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
