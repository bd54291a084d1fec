//! Rows of a table by their keys.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use datum::key::bucket_of;
use datum::{Datum, PrimaryKey};
use reql::{Env, EvalError};

use super::bucketed_rows::BucketedRows;
use super::row_reads;
use crate::context::Cx;
use crate::table::{BucketPosition, StoredTable, TableRef, access};

/// The rows under some keys, each as often as its key was given.
pub(crate) struct KeySource {
    cx: Arc<Cx>,
    table: StoredTable,
    waiting: std::vec::IntoIter<(PrimaryKey, usize)>,
    ready: VecDeque<KeyedRow>,
    /// How many keys are read next.
    ahead: usize,
}

/// A row, how many times it is in the sequence, and its bucket.
struct KeyedRow {
    row: Datum,
    times: usize,
    bucket: u8,
}

/// Most keys that are read at once.
const AHEAD_MAX: usize = 256;

impl KeySource {
    /// The rows of `table` under `keys`, which must be sorted. Fails if the caller may not read them.
    pub fn new(cx: &Cx, table: StoredTable, keys: Vec<(PrimaryKey, usize)>) -> Result<KeySource, EvalError> {
        access::check_stream_read(cx, &TableRef::Stored(table.clone()))?;
        let waiting = keys.into_iter();
        Ok(KeySource { cx: cx.shared()?, table, waiting, ready: VecDeque::new(), ahead: 1 })
    }

    /// The table, and the keys that were not read yet, each with the number of times that it was given.
    pub fn keys(&self) -> (StoredTable, BTreeMap<PrimaryKey, u32>) {
        let copies =
            |(key, times): &(PrimaryKey, usize)| (key.clone(), u32::try_from(*times).unwrap_or(u32::MAX));
        (self.table.clone(), self.waiting.as_slice().iter().map(copies).collect())
    }

    /// Whether it is known without reading that there are no rows.
    pub fn is_exhausted(&self) -> bool {
        self.ready.is_empty() && self.waiting.len() == 0
    }

    fn read_ahead(&mut self) -> Result<bool, EvalError> {
        let (keys, times): (Vec<PrimaryKey>, Vec<usize>) = self.waiting.by_ref().take(self.ahead).unzip();
        if keys.is_empty() {
            return Ok(false);
        }
        self.ahead = (self.ahead * 4).min(AHEAD_MAX);
        let buckets: Vec<u8> = keys.iter().map(|key| bucket_of(key.as_bytes())).collect();
        let rows = row_reads::rows(&self.cx, &self.table, keys)?.into_iter().zip(times).zip(buckets);
        let rows = rows.filter(|((row, _), _)| !matches!(row, Datum::Null));
        self.ready.extend(rows.map(|((row, times), bucket)| KeyedRow { row, times, bucket }));
        Ok(true)
    }
}

impl BucketedRows for KeySource {
    fn next_row(&mut self, env: &Env<'_>) -> Result<Option<(BucketPosition, Datum, u64)>, EvalError> {
        loop {
            if let Some(KeyedRow { row, times, bucket }) = self.ready.pop_front() {
                return Ok(Some((BucketPosition { number: bucket, rows: 1 }, row, times as u64)));
            }
            env.check_cancel()?;
            if !self.read_ahead()? {
                return Ok(None);
            }
        }
    }
}
