//! Extends the stack for deeply nested values and terms.

pub(crate) use datum::deep::level;
