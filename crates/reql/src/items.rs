//! Streams: sequences whose items are produced on demand.

use datum::Datum;

use crate::env::Env;
use crate::error::EvalError;

/// The items of a sequence without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endless {
    /// The numbers of `range`.
    Numbers,
    /// The changes of a changefeed.
    Changes,
}

impl Endless {
    /// The error of a term that needs all items. Source: datum_stream.cc and changefeed.cc of RethinkDB 2.4.
    #[must_use]
    pub fn error(self) -> EvalError {
        EvalError::logic(match self {
            Endless::Numbers => {
                "Cannot use an infinite stream with an aggregation function (`reduce`, `count`, etc.) or coerce it to \
                 an array."
            }
            Endless::Changes => {
                "Cannot call a terminal (`reduce`, `count`, etc.) on an infinite stream (such as a changefeed)."
            }
        })
    }
}

/// A sequence that is read once, from its start.
pub trait Items: Send {
    /// The next item; `None` after the last. If it fails with [`EvalError::not_ready`], the sequence is as before, and the
    /// call may be repeated.
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError>;

    /// Set if the sequence never ends, so that no term may read all of it.
    fn endless(&self) -> Option<Endless> {
        None
    }

    /// Whether [`Items::next`] only takes items from memory, without calling a function or reading rows.
    fn is_immediate(&self) -> bool {
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

    fn endless(&self) -> Option<Endless> {
        (**self).endless()
    }

    fn is_immediate(&self) -> bool {
        (**self).is_immediate()
    }

    fn is_exhausted(&self) -> bool {
        (**self).is_exhausted()
    }
}
