//! Stack for values and terms nested deeper than a thread's own stack allows.

use std::borrow::Cow;

use datum::Object;

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

/// Levels of objects that are looked for in the text they are stored as.
const TEXT_LEVELS_MAX: usize = 16;

/// `object`, which a walk came to after `depth` levels, read out of its text if they are many: each level of a text
/// is looked through again for every level above it.
pub(crate) fn read(object: &Object, depth: usize) -> Cow<'_, Object> {
    match depth < TEXT_LEVELS_MAX {
        true => Cow::Borrowed(object),
        false => Cow::Owned(object.to_tree()),
    }
}
