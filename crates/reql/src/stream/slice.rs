//! `slice`, `skip`, `limit` and `nth`: parts of a sequence by position.

use datum::{Array, Datum};

use super::{Endless, Items};
use crate::env::Env;
use crate::error::EvalError;

/// A range of positions in a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The first position, counted from the end if negative. Excluded if `left_open` is set.
    pub left: i64,
    /// The position to stop before, counted from the end if negative. Included if `right_closed` is set.
    pub right: i64,
    /// Whether the left position is excluded.
    pub left_open: bool,
    /// Whether the right position is included.
    pub right_closed: bool,
}

impl Slice {
    /// All items but the first `count`.
    #[must_use]
    pub fn skip(count: i64) -> Self {
        Slice { left: count, right: -1, left_open: false, right_closed: true }
    }

    /// The first `count` items.
    #[must_use]
    pub fn limit(count: i64) -> Self {
        Slice { left: 0, right: count, left_open: false, right_closed: false }
    }

    /// The positions in a sequence of `len` items: from the first up to, but not including, the second.
    ///
    /// A left position before the start counts as the start; a right position before the start makes the slice
    /// empty.
    #[must_use]
    pub fn within(self, len: usize) -> (usize, usize) {
        let size = i64::try_from(len).unwrap_or(i64::MAX);
        let from_start = |position: i64| if position < 0 { position + size } else { position };
        let left = from_start(self.left);
        let left = if left < 0 { 0 } else { left.saturating_add(i64::from(self.left_open)) };
        let right = from_start(self.right);
        let right = if right < 0 { 0 } else { right.saturating_add(i64::from(self.right_closed)) };
        let right = right.clamp(0, size);
        let position = |position: i64| usize::try_from(position).unwrap_or(0);
        (position(left.min(right)), position(right))
    }

    #[must_use]
    pub fn of_array(self, items: &Array) -> Array {
        let (from, to) = self.within(items.len());
        if (from, to) == (0, items.len()) {
            return items.clone();
        }
        Array::from(items[from..to].to_vec())
    }

    /// The positions in a stream: from the first up to, but not including, the second, if there is an end.
    ///
    /// Fails if a position is counted from the end.
    pub fn of_stream(self) -> Result<(u64, Option<u64>), EvalError> {
        let Ok(left) = u64::try_from(self.left) else {
            return Err(EvalError::logic("Cannot use a negative left index on a stream."));
        };
        let left = left + u64::from(self.left_open);
        let right = match u64::try_from(self.right) {
            Ok(right) => Some(right + u64::from(self.right_closed)),
            Err(_) if self.right < -1 => {
                return Err(EvalError::logic("Cannot use a right index < -1 on a stream."));
            }
            Err(_) if self.right_closed => None,
            Err(_) => {
                return Err(EvalError::logic("Cannot slice to an open right index of -1 on a stream."));
            }
        };
        Ok((left, right))
    }
}

/// A slice of another stream.
pub struct Sliced<I> {
    items: I,
    skip: u64,
    /// The number of items still to emit, if there is an end.
    left: Option<u64>,
}

impl<I: Items> Sliced<I> {
    /// Takes the `slice` of `items`.
    pub fn new(items: I, slice: Slice) -> Result<Self, EvalError> {
        let (from, to) = slice.of_stream()?;
        Ok(Sliced { items, skip: from, left: to.map(|to| to.saturating_sub(from)) })
    }
}

impl<I: Items> Items for Sliced<I> {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        if self.left == Some(0) {
            return Ok(None);
        }
        while self.skip > 0 {
            env.check_cancel()?;
            if self.items.next(env)?.is_none() {
                return Ok(None);
            }
            self.skip -= 1;
        }
        // Counted afterwards: a changefeed that has no item now fails, and is read again.
        let item = self.items.next(env)?;
        self.left = self.left.map(|left| left - 1);
        Ok(item)
    }

    fn endless(&self) -> Option<Endless> {
        self.items.endless().filter(|_| self.left.is_none())
    }

    fn is_immediate(&self) -> bool {
        self.items.is_immediate()
    }

    fn is_exhausted(&self) -> bool {
        self.left == Some(0) || self.items.is_exhausted()
    }
}

/// `nth`: the item at a position of a stream; -1 is the last.
pub fn nth(items: &mut dyn Items, position: i32, env: &Env<'_>) -> Result<Datum, EvalError> {
    if position < -1 {
        return Err(EvalError::logic(format!("Cannot use an index < -1 ({position}) on a stream.")));
    }
    if position == -1
        && let Some(endless) = items.endless()
    {
        return Err(endless.error());
    }
    let mut last = None;
    let mut left = position;
    while let Some(item) = items.next(env)? {
        env.check_cancel()?;
        if left == 0 {
            return Ok(item);
        }
        left -= 1;
        last = Some(item).filter(|_| position == -1);
    }
    last.ok_or_else(|| EvalError::out_of_bounds(position.into()))
}
