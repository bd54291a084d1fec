//! The rows of a table under some keys.

use std::collections::VecDeque;
use std::sync::Arc;

use datum::{Datum, PrimaryKey};
use reql::stream::Items;
use reql::{Env, EvalError};

use crate::access;
use crate::context::Cx;
use crate::read;
use crate::table::{StoredTable, TableRef};

/// The rows under some keys, each as many times as its key was named.
pub(crate) struct KeySource {
    cx: Arc<Cx>,
    table: StoredTable,
    waiting: std::vec::IntoIter<(PrimaryKey, usize)>,
    ready: VecDeque<(Datum, usize)>,
    /// How many keys are asked for at once.
    ahead: usize,
}

/// Most keys that are asked for at once.
const AHEAD_MAX: usize = 256;

impl KeySource {
    /// The rows of `table` under `keys`, in their order. Fails if whoever asks may not read them.
    pub fn new(cx: &Cx, table: StoredTable, keys: Vec<(PrimaryKey, usize)>) -> Result<KeySource, EvalError> {
        access::check_streamed(cx, &TableRef::Stored(table.clone()))?;
        let waiting = keys.into_iter();
        Ok(KeySource { cx: cx.shared()?, table, waiting, ready: VecDeque::new(), ahead: 1 })
    }

    fn read_ahead(&mut self) -> Result<bool, EvalError> {
        let (keys, times): (Vec<PrimaryKey>, Vec<usize>) = self.waiting.by_ref().take(self.ahead).unzip();
        if keys.is_empty() {
            return Ok(false);
        }
        self.ahead = (self.ahead * 4).min(AHEAD_MAX);
        let rows = read::rows(&self.cx, &self.table, keys)?;
        let found = rows.into_iter().zip(times).filter(|(row, _)| !matches!(row, Datum::Null));
        self.ready.extend(found);
        Ok(true)
    }
}

impl Items for KeySource {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            if let Some((row, times)) = self.ready.front_mut() {
                if *times > 0 {
                    *times -= 1;
                    return Ok(Some(row.clone()));
                }
                self.ready.pop_front();
                continue;
            }
            env.check_cancel()?;
            if !self.read_ahead()? {
                return Ok(None);
            }
        }
    }

    fn is_exhausted(&self) -> bool {
        self.ready.is_empty() && self.waiting.len() == 0
    }
}
