//! Walks down into values that make something, and who may end them.

use std::borrow::Cow;

use datum::{Object, cancel};

use crate::env::Cancel;
use crate::error::EvalError;

/// Levels of objects that are looked for in the text they are stored as.
const TEXT_LEVELS_MAX: usize = 16;

/// A walk down into values that makes something: how deep it is, and who may end it. Values share their parts, so
/// that what is made of a small one can be larger than all memory.
#[derive(Clone, Copy)]
pub(crate) struct Walk<'a> {
    depth: usize,
    /// Whoever this thread works for, if nobody is named.
    cancel: Option<&'a Cancel>,
}

impl<'a> Walk<'a> {
    /// A walk from the outermost level until `cancel` ends it.
    pub(crate) fn until(cancel: &'a Cancel) -> Walk<'a> {
        Walk { depth: 0, cancel: Some(cancel) }
    }

    /// A walk for whoever this thread works for.
    pub(crate) fn of_thread() -> Walk<'static> {
        Walk { depth: 0, cancel: None }
    }

    /// One level further down. Fails if nobody waits any more, or there is no more memory.
    pub(crate) fn deeper(self) -> Result<Walk<'a>, EvalError> {
        match self.cancel {
            Some(cancel) => cancel.check()?,
            None if !cancel::may_continue(1) => return Err(EvalError::cancelled()),
            None => io::memory::check().map_err(EvalError::memory)?,
        }
        Ok(Walk { depth: self.depth + 1, ..self })
    }

    /// `object`, which the walk came to, read out of its text if its levels are many: each level of a text is looked
    /// through again for every level above it.
    pub(crate) fn read(self, object: &Object) -> Cow<'_, Object> {
        match self.depth < TEXT_LEVELS_MAX {
            true => Cow::Borrowed(object),
            false => Cow::Owned(object.to_tree()),
        }
    }
}
