//! Stack for values and terms nested deeper than a thread's own stack allows.

pub(crate) use datum::deep::level;
