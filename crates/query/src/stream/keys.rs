//! The rows of a table under some keys.

use std::collections::VecDeque;
use std::sync::Arc;

use datum::key::bucket_of;
use datum::{Datum, PrimaryKey};
use reql::{Env, EvalError};

use super::handed::HandedRows;
use crate::access;
use crate::context::Cx;
use crate::order::Hand;
use crate::read;
use crate::table::{StoredTable, TableRef};

/// The rows under some keys, each as many times as its key was named.
pub(crate) struct KeySource {
    cx: Arc<Cx>,
    table: StoredTable,
    waiting: std::vec::IntoIter<(PrimaryKey, usize)>,
    ready: VecDeque<Found>,
    /// How many keys are asked for at once.
    ahead: usize,
}

/// A row, how many times it is wanted, and out of which hand it is given.
struct Found {
    row: Datum,
    times: usize,
    hand: u8,
}

/// Most keys that are asked for at once.
const AHEAD_MAX: usize = 256;

impl KeySource {
    /// The rows of `table` under `keys`, which are in order. Fails if whoever asks may not read them.
    pub fn new(cx: &Cx, table: StoredTable, keys: Vec<(PrimaryKey, usize)>) -> Result<KeySource, EvalError> {
        access::check_streamed(cx, &TableRef::Stored(table.clone()))?;
        let waiting = keys.into_iter();
        Ok(KeySource { cx: cx.shared()?, table, waiting, ready: VecDeque::new(), ahead: 1 })
    }

    /// Whether it can be seen without reading that there is nothing.
    pub fn is_exhausted(&self) -> bool {
        self.ready.is_empty() && self.waiting.len() == 0
    }

    fn read_ahead(&mut self) -> Result<bool, EvalError> {
        let (keys, times): (Vec<PrimaryKey>, Vec<usize>) = self.waiting.by_ref().take(self.ahead).unzip();
        if keys.is_empty() {
            return Ok(false);
        }
        self.ahead = (self.ahead * 4).min(AHEAD_MAX);
        let hands: Vec<u8> = keys.iter().map(|key| bucket_of(key.as_bytes())).collect();
        let rows = read::rows(&self.cx, &self.table, keys)?.into_iter().zip(times).zip(hands);
        let rows = rows.filter(|((row, _), _)| !matches!(row, Datum::Null));
        self.ready.extend(rows.map(|((row, times), hand)| Found { row, times, hand }));
        Ok(true)
    }
}

impl HandedRows for KeySource {
    fn next_row(&mut self, env: &Env<'_>) -> Result<Option<(Hand, Datum, u64)>, EvalError> {
        loop {
            if let Some(Found { row, times, hand }) = self.ready.pop_front() {
                return Ok(Some((Hand { number: hand, rows: 1 }, row, times as u64)));
            }
            env.check_cancel()?;
            if !self.read_ahead()? {
                return Ok(None);
            }
        }
    }
}
