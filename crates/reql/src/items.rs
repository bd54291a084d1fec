//! Streams: sequences whose items are produced on demand.

use datum::Datum;

use crate::env::Env;
use crate::error::EvalError;

/// A sequence that is read once, from its start.
pub trait Items: Send {
    /// The next item; `None` after the last. If it fails with [`EvalError::not_ready`], the sequence is as before, and the
    /// call may be repeated.
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError>;

    /// Whether the sequence never ends, so that no term may read all of it.
    fn is_infinite(&self) -> bool {
        false
    }

    /// Whether the sequence is known to have no more items, without reading. Source: `is_exhausted` in
    /// datum_stream.cc of RethinkDB 2.4.
    fn is_exhausted(&self) -> bool {
        false
    }
}

impl Items for Box<dyn Items> {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        (**self).next(env)
    }

    fn is_infinite(&self) -> bool {
        (**self).is_infinite()
    }

    fn is_exhausted(&self) -> bool {
        (**self).is_exhausted()
    }
}
