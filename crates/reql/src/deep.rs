//! Stack for values and terms nested deeper than a thread's own stack allows.

/// Stack that must be left before another level is entered.
const RED_ZONE_BYTES: usize = 96 << 10;
/// Stack added each time the red zone is reached.
const SEGMENT_BYTES: usize = 1 << 20;

/// Runs `level`, one level of a walk over something nested, on a new piece of stack when little
/// is left. Costs one thread-local read when there is enough.
#[inline]
pub(crate) fn level<R>(level: impl FnOnce() -> R) -> R {
    stacker::maybe_grow(RED_ZONE_BYTES, SEGMENT_BYTES, level)
}
