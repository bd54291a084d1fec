//! An engine with the rows of all tables of a node, and a cache of rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use datum::{Object, row};
use engine::{Change, Engine, EngineError, Space};

use crate::change::DETACHED_BYTES_MAX;
use crate::layout::{RowKey, claim};
use crate::row_cache::{BatchLookup, CacheLookup, RowCache, RowCacheStats};
use crate::{Changes, FormatError, RowAhead, RowTexts};

/// The store of a node's tables. Every change of a row must go through it, so that its cache stays correct.
pub struct Store {
    engine: Arc<dyn Engine>,
    rows: RowCache,
    // Whether the disk has space for rows only in an emergency.
    refuses_rows: AtomicBool,
}

impl Store {
    /// Opens the store in `engine`: checks the format, or sets it if the engine is empty. The row cache takes at most
    /// `row_cache_bytes`.
    pub fn open(engine: Arc<dyn Engine>, row_cache_bytes: usize) -> Result<Arc<Store>, FormatError> {
        claim(&*engine)?;
        Ok(Arc::new(Store {
            engine,
            rows: RowCache::new(row_cache_bytes),
            refuses_rows: AtomicBool::new(false),
        }))
    }

    #[must_use]
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Sets the size of the row cache in bytes.
    pub fn set_row_cache_bytes(&self, bytes: usize) {
        self.rows.resize(bytes);
    }

    /// Whether new rows and new versions of rows should be refused, because the disk is almost full. Deletions, and changes
    /// that are already in the log, should not.
    #[must_use]
    pub fn refuses_rows(&self) -> bool {
        self.refuses_rows.load(Ordering::Relaxed)
    }

    /// Sets whether rows should be refused.
    pub fn set_refuses_rows(&self, refuses: bool) {
        self.refuses_rows.store(refuses, Ordering::Relaxed);
    }

    /// Applies `changes` atomically, visible on return.
    pub fn write(&self, changes: Changes) -> Result<(), EngineError> {
        let mut rows = Vec::with_capacity(changes.batch.len());
        for change in changes.batch.changes() {
            let (key, value) = match change {
                Change::Put { space: Space::Rows, key, value } => (key, Some(value)),
                Change::Delete { space: Space::Rows, key } => (key, None),
                _ => continue,
            };
            rows.push((self.rows.begin_change(key, value.map(Bytes::len)), value.cloned()));
        }
        let written = self.engine.write(changes.batch);
        // In the order of the batch: the last change of a row is the one that the engine has.
        for (changing, value) in rows {
            let value = value.filter(|_| written.is_ok());
            self.rows.end_change(&changing, || cached_form(&value?));
        }
        written
    }

    /// Empties the row cache: the engine's rows were deleted past it.
    pub fn forget_cached(&self) {
        self.rows.clear();
    }

    /// Statistics of the row cache; all zero if it is off.
    #[must_use]
    pub fn row_cache_stats(&self) -> RowCacheStats {
        self.rows.stats()
    }

    /// The row at the engine's key `key`: from the cache, or else from `read`, which returns it with its size in bytes.
    pub(crate) fn row<E>(
        &self,
        key: &[u8],
        read: impl FnOnce() -> Result<Option<(Object, usize)>, E>,
    ) -> Result<Option<Object>, E> {
        if self.rows.is_off() {
            return Ok(read()?.map(|(row, _)| row));
        }
        let permit = match self.rows.find(key) {
            CacheLookup::Row(row) => return Ok(Some(row)),
            CacheLookup::Missing(permit) => permit,
        };
        let found = read().inspect_err(|_| self.rows.uncount_miss(&permit))?;
        let Some((row, row_bytes)) = found else { return Ok(None) };
        self.rows.keep(&permit, key, &row, row_bytes);
        Ok(Some(row))
    }

    /// As [`Store::row`], for a caller that has to know later whether the row is still the newest one.
    pub(crate) fn row_ahead<E>(
        &self,
        key: &[u8],
        read: impl FnOnce() -> Result<Option<(Object, usize)>, E>,
    ) -> Result<RowAhead, E> {
        let permit = self.rows.permit(key);
        Ok(RowAhead { row: self.row(key, read)?, permit })
    }

    /// Whether the engine still has the row in `ahead`.
    pub(crate) fn is_newest(&self, ahead: &RowAhead) -> bool {
        self.rows.is_unchanged(&ahead.permit)
    }

    /// Calls `read_row` with the row at the engine's key `key`, or `None` if there is none: from the cache, perhaps
    /// under a lock, or from `read` as in [`Store::row`].
    pub(crate) fn with_row<R, E>(
        &self,
        key: &[u8],
        read_row: impl FnOnce(Option<&Object>) -> R,
        read: impl FnOnce() -> Result<Option<(Object, usize)>, E>,
    ) -> Result<R, E> {
        if self.rows.is_off() {
            return Ok(read_row(read()?.as_ref().map(|(row, _)| row)));
        }
        let (permit, read_row) = match self.rows.with_row(key, read_row) {
            Ok(taken) => return Ok(taken),
            Err(missed) => missed,
        };
        let found = read().inspect_err(|_| self.rows.uncount_miss(&permit))?;
        let Some((row, row_bytes)) = found else { return Ok(read_row(None)) };
        self.rows.keep(&permit, key, &row, row_bytes);
        Ok(read_row(Some(&row)))
    }

    /// Appends the rows at the engine's keys `keys` to `texts`, in order: from the cache, and the missing ones from
    /// `read`. `read` receives the indexes of the missing keys in `keys`, and returns their rows in that order with their
    /// sizes in bytes. Stops once `texts` has `bytes_max` bytes or more.
    pub(crate) fn texts<E>(
        &self,
        keys: &[RowKey],
        texts: &mut RowTexts,
        bytes_max: usize,
        read: impl Fn(&[usize]) -> Result<Vec<Option<(Object, usize)>>, E>,
    ) -> Result<(), E> {
        let lookups = self.rows.look_up_many(keys);
        let is_missing = |i: &usize| matches!(lookups.get(*i), Some(BatchLookup::Missing(_)));
        let missing: Vec<usize> = (0..keys.len()).filter(is_missing).collect();
        let found = if missing.is_empty() { Ok(Vec::new()) } else { read(&missing) };
        let mut found = found.inspect_err(|_| self.uncount_misses(&lookups))?.into_iter();
        lookups.iter().take(PREFETCH_ROWS).for_each(|lookup| self.rows.prefetch_entry(lookup));
        for (i, (key, lookup)) in keys.iter().zip(&lookups).enumerate() {
            if texts.bytes() >= bytes_max {
                break;
            }
            if let Some(ahead) = lookups.get(i + PREFETCH_ROWS) {
                self.rows.prefetch_entry(ahead);
            }
            if texts.len() == 1 {
                texts.expect(keys.len() - i);
            }
            let row = match lookup {
                BatchLookup::Cached { hash, .. }
                    if self.rows.with_cached_row(*hash, key, |row| texts.push_row(row)) =>
                {
                    continue;
                }
                // Evicted since the lookup.
                BatchLookup::Cached { .. } => read(&[i])?.pop().flatten(),
                BatchLookup::Missing(permit) => found.next().flatten().inspect(|(row, row_bytes)| {
                    self.rows.keep(permit, key.as_bytes(), row, *row_bytes);
                }),
            };
            row.iter().for_each(|(row, _)| texts.push_row(row));
        }
        Ok(())
    }

    fn uncount_misses(&self, lookups: &[BatchLookup]) {
        for lookup in lookups {
            if let BatchLookup::Missing(permit) = lookup {
                self.rows.uncount_miss(permit);
            }
        }
    }
}

/// Rows that are prefetched while another is copied.
const PREFETCH_ROWS: usize = 6;

/// The row in `value` with its size in bytes. A long row is copied, since it is a slice of a whole log entry.
fn cached_form(value: &Bytes) -> Option<(Object, usize)> {
    let is_detached = value.len() <= DETACHED_BYTES_MAX;
    let value = if is_detached { value.clone() } else { Bytes::copy_from_slice(value) };
    let bytes = value.len();
    Some((row::decode(value).ok()?, bytes))
}
