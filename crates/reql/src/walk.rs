//! Walks down nested values, building a result, with cancellation.

use std::borrow::Cow;

use datum::{Object, cancel};

use crate::env::Cancel;
use crate::error::EvalError;

/// Levels of stored objects that are searched in their text.
const TEXT_LEVELS_MAX: usize = 16;

/// A walk down a nested value that builds a result: its depth and its cancel flag. Values share their parts, so the
/// result for a small value can be larger than all memory.
#[derive(Clone, Copy)]
pub(crate) struct Walk<'a> {
    depth: usize,
    /// `None` for the cancel token of the thread.
    cancel: Option<&'a Cancel>,
}

impl<'a> Walk<'a> {
    /// A walk at the outermost level that ends when `cancel` is set.
    pub(crate) fn until(cancel: &'a Cancel) -> Walk<'a> {
        Walk { depth: 0, cancel: Some(cancel) }
    }

    /// A walk that ends when the current token of this thread is cancelled.
    pub(crate) fn of_thread() -> Walk<'static> {
        Walk { depth: 0, cancel: None }
    }

    /// The next level. Fails if the walk is cancelled or there is no more memory.
    pub(crate) fn deeper(self) -> Result<Walk<'a>, EvalError> {
        match self.cancel {
            Some(cancel) => cancel.check()?,
            None if !cancel::may_continue(1) => return Err(EvalError::cancelled()),
            None => io::memory::check().map_err(EvalError::memory)?,
        }
        Ok(Walk { depth: self.depth + 1, ..self })
    }

    /// `object`, converted to a tree if the walk is deep: otherwise the text of each level would be scanned again
    /// at every level above it.
    pub(crate) fn read(self, object: &Object) -> Cow<'_, Object> {
        match self.depth < TEXT_LEVELS_MAX {
            true => Cow::Borrowed(object),
            false => Cow::Owned(object.to_tree()),
        }
    }
}
