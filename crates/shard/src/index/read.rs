//! Reads rows by an index: entries of a snapshot in order, each with its row from the same snapshot.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use datum::{Datum, KeyError, KeyRange, Object, PrimaryKey};
use storage::{Direction, IndexHit, IndexId, IndexRange, IndexScan, ReadError, TableSnapshot};

use super::def::IndexDef;
use super::range::{Bounds, resume_at};

/// Whether the order of the rows matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    Any,
    /// By value, then by primary key, in this direction.
    By(Direction),
}

impl RowOrder {
    /// The direction in which entries are scanned.
    fn direction(self) -> Direction {
        match self {
            RowOrder::By(direction) => direction,
            RowOrder::Any => Direction::Ascending,
        }
    }
}

/// A query of an index. Plain data.
#[derive(Clone, Debug)]
pub struct IndexQuery {
    pub index: IndexId,
    /// The values to read rows of, and how many times to return each row.
    pub wanted: Arc<[(Bounds, u32)]>,
    /// Restricts the rows by their keys.
    pub rows: KeyRange,
    /// Only rows after this position, in the same order of the same values.
    pub after: Option<IndexCursor>,
    /// The order of the rows. Only a single range of values can be read in order.
    pub order: RowOrder,
    /// The most rows with one truncated key that may be buffered for sorting.
    pub sorted_max: usize,
}

impl IndexQuery {
    /// A query for the rows under these values, whatever their keys, from the first one on.
    #[must_use]
    pub fn of(
        index: IndexId,
        wanted: Arc<[(Bounds, u32)]>,
        order: RowOrder,
        sorted_max: usize,
    ) -> IndexQuery {
        IndexQuery { index, wanted, rows: KeyRange::all(), after: None, order, sorted_max }
    }
}

/// Errors of reading an index.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IndexError {
    /// The shard does not know the index (yet, or any more).
    #[error("there is no index {0}")]
    Missing(IndexId),
    /// The index is not built yet.
    #[error("index {0} is not built yet")]
    NotReady(IndexId),
    /// A bound cannot be an index key.
    #[error(transparent)]
    Bound(#[from] KeyError),
    /// Too many rows have the same truncated key to be sorted.
    #[error("more than {most} rows have the same cut key")]
    TooMany {
        /// The limit.
        most: usize,
        /// The value of one of the rows.
        value: Datum,
    },
    /// An entry or its row could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The position of a row in the order of an index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexRowPosition {
    /// The index key.
    pub key: Bytes,
    /// The value, if the key was truncated.
    pub value: Option<Datum>,
    /// The row's key.
    pub primary: PrimaryKey,
}

impl IndexRowPosition {
    /// The position of a row in an unordered read.
    #[must_use]
    pub fn none() -> IndexRowPosition {
        IndexRowPosition { key: Bytes::new(), value: None, primary: PrimaryKey(Bytes::new()) }
    }
}

/// The position after which a read of an index continues. Plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexCursor {
    /// The index of the range of values, in `IndexQuery::wanted`.
    pub wanted: u32,
    /// The position of the last row.
    pub position: IndexRowPosition,
}

/// A row read by an index.
#[derive(Clone, Debug)]
pub struct IndexRow {
    pub position: IndexRowPosition,
    /// The index of the range of values that it was found in, in `IndexQuery::wanted`.
    pub wanted: u32,
    pub row: Object,
    /// How many times it is returned under this value.
    pub times: u64,
}

impl IndexRow {
    /// The index value that it was found under.
    #[must_use]
    pub fn value(&self, index: &IndexDef) -> Datum {
        match &self.position.value {
            Some(value) => value.clone(),
            None => {
                let mut values = index.values(&self.row).into_iter();
                values.find(|(key, _)| key.bytes == self.position.key).map_or(Datum::Null, |(_, value)| value)
            }
        }
    }
}

/// A read of a shard's rows by an index.
pub struct IndexRows {
    snapshot: TableSnapshot,
    index: Arc<IndexDef>,
    order: RowOrder,
    sorted_max: usize,
    rows: KeyRange,
    // Rows up to this position were read before.
    after: Option<IndexCursor>,
    // The ranges still to be read, the next one last.
    waiting: Vec<Waiting>,
    current: Option<Current>,
    // Buffered rows of a truncated key.
    ready: VecDeque<IndexRow>,
}

/// A range of values.
struct Waiting {
    wanted: u32,
    bounds: Bounds,
    times: u32,
    range: IndexRange,
}

struct Current {
    wanted: u32,
    bounds: Bounds,
    times: u32,
    scan: IndexScan,
    // An entry that was read ahead.
    next: Option<IndexHit>,
}

impl IndexRows {
    /// Starts reading `query` in `snapshot`.
    pub(crate) fn new(
        snapshot: TableSnapshot,
        index: Arc<IndexDef>,
        query: &IndexQuery,
    ) -> Result<IndexRows, IndexError> {
        let begun = query.after.as_ref().map_or(0, |after| after.wanted);
        let waiting = (0..).zip(query.wanted.iter()).filter(|(wanted, _)| *wanted >= begun);
        let waiting = waiting.map(|(wanted, (bounds, times))| {
            Ok(Waiting { wanted, bounds: bounds.clone(), times: *times, range: bounds.range()? })
        });
        let mut waiting = waiting.collect::<Result<Vec<_>, KeyError>>()?;
        if let (Some(first), Some(after)) = (waiting.first_mut(), &query.after) {
            let whole = std::mem::replace(&mut first.range, IndexRange::all());
            first.range = resume_at(whole, &after.position.key, query.order.direction());
        }
        waiting.reverse();
        Ok(IndexRows {
            snapshot,
            index,
            order: query.order,
            sorted_max: query.sorted_max,
            rows: query.rows.clone(),
            after: query.after.clone(),
            waiting,
            current: None,
            ready: VecDeque::new(),
        })
    }

    #[must_use]
    pub fn index(&self) -> &Arc<IndexDef> {
        &self.index
    }

    /// The next row, or `None` at the end.
    #[allow(clippy::should_implement_trait, reason = "a failed read must not be skipped over")]
    pub fn next(&mut self) -> Result<Option<IndexRow>, IndexError> {
        loop {
            if let Some(row) = self.ready.pop_front() {
                return Ok(Some(row));
            }
            let Some((hit, times)) = self.next_hit()? else { return Ok(None) };
            if hit.entry.truncated {
                self.read_truncated(hit, times)?;
                continue;
            }
            let row = self.row(&hit.primary)?;
            let times = u64::from(hit.entry.times) * u64::from(times);
            let position = IndexRowPosition { key: hit.key, value: None, primary: hit.primary };
            return Ok(Some(IndexRow { position, wanted: self.wanted(), row, times }));
        }
    }

    /// The number of remaining rows. Reads rows only where keys were truncated.
    pub fn count(mut self) -> Result<u64, IndexError> {
        let mut count = self.ready.iter().map(|row| row.times).sum();
        while let Some((hit, times)) = self.next_hit()? {
            if hit.entry.truncated {
                count += self.truncated_rows(&hit, times)?.iter().map(|row| row.times).sum::<u64>();
            } else {
                count += u64::from(hit.entry.times) * u64::from(times);
            }
        }
        Ok(count)
    }

    /// Whether more than `most` entries are left. Reads no row, and not much further.
    pub fn has_more_than(mut self, most: u64) -> Result<bool, IndexError> {
        for _ in 0..=most {
            if self.next_hit()?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The next entry, and how many times its rows are returned.
    fn next_hit(&mut self) -> Result<Option<(IndexHit, u32)>, ReadError> {
        loop {
            if let Some(current) = &mut self.current {
                let next = match current.next.take() {
                    Some(next) => Some(next),
                    None => current.scan.next()?,
                };
                let times = current.times;
                match next {
                    Some(hit) if self.is_behind(&hit) => continue,
                    Some(hit) => return Ok(Some((hit, times))),
                    None => {}
                }
            }
            let Some(Waiting { wanted, bounds, times, range }) = self.waiting.pop() else { return Ok(None) };
            let direction = self.order.direction();
            let scan = match self.current.take() {
                Some(Current { mut scan, .. }) => {
                    scan.restart(&range);
                    scan
                }
                // The only range, or the first of several.
                None if self.waiting.is_empty() => {
                    self.snapshot.scan_index(self.index.id(), &range, &self.rows, direction)
                }
                None => {
                    let (index, all) = (self.index.id(), IndexRange::all());
                    let mut scan = self.snapshot.scan_index(index, &all, &self.rows, direction);
                    scan.restart(&range);
                    scan
                }
            };
            self.current = Some(Current { wanted, bounds, times, scan, next: None });
        }
    }

    /// The index of the range of values that is being read.
    fn wanted(&self) -> u32 {
        self.current.as_ref().map_or(0, |current| current.wanted)
    }

    /// The position up to which rows of the present range of values were read before.
    fn after(&self) -> Option<&IndexRowPosition> {
        self.after.as_ref().filter(|after| after.wanted == self.wanted()).map(|after| &after.position)
    }

    /// Whether a hit was read before, as far as that is known without its row.
    fn is_behind(&self, hit: &IndexHit) -> bool {
        let Some(after) = self.after().filter(|_| !hit.entry.truncated) else { return false };
        let order = (&hit.key, None, &hit.primary).cmp(&(&after.key, after.value.as_ref(), &after.primary));
        match self.order.direction() {
            Direction::Ascending => order.is_le(),
            Direction::Descending => order.is_ge(),
        }
    }

    /// Buffers the rows of the truncated key of `hit` whose values are wanted: all of them, sorted, if the order
    /// matters.
    fn read_truncated(&mut self, hit: IndexHit, times: u32) -> Result<(), IndexError> {
        let key = hit.key.clone();
        let mut rows: Vec<IndexRow> = Vec::new();
        let mut next = Some(hit);
        while let Some(hit) = next.take() {
            if hit.key != key {
                if let Some(current) = &mut self.current {
                    current.next = Some(hit);
                }
                break;
            }
            rows.extend(self.truncated_rows(&hit, times)?);
            let RowOrder::By(_) = self.order else { break };
            if rows.len() > self.sorted_max
                && let Some(value) = rows.pop().and_then(|row| row.position.value)
            {
                return Err(IndexError::TooMany { most: self.sorted_max, value });
            }
            next = match &mut self.current {
                Some(current) => current.scan.next()?,
                None => None,
            };
        }
        match self.order {
            RowOrder::Any => {}
            RowOrder::By(Direction::Ascending) => rows.sort_by(|a, b| a.position.cmp(&b.position)),
            RowOrder::By(Direction::Descending) => rows.sort_by(|a, b| b.position.cmp(&a.position)),
        }
        self.ready.extend(rows);
        Ok(())
    }

    /// The row of a truncated key, once for each of its values under this key that is wanted and was not read before.
    fn truncated_rows(&self, hit: &IndexHit, times: u32) -> Result<Vec<IndexRow>, ReadError> {
        let row = self.row(&hit.primary)?;
        let mut rows: Vec<IndexRow> = Vec::new();
        let mut known: BTreeMap<Datum, usize> = BTreeMap::new();
        for value in self.values_under(&row, hit).into_iter().filter(|value| self.holds(value)) {
            // Rows with the same position stay together.
            if let Some(same) = known.get(&value) {
                rows[*same].times += u64::from(times);
                continue;
            }
            known.insert(value.clone(), rows.len());
            let position =
                IndexRowPosition { key: hit.key.clone(), value: Some(value), primary: hit.primary.clone() };
            rows.push(IndexRow {
                position,
                wanted: self.wanted(),
                row: row.clone(),
                times: u64::from(times),
            });
        }
        let Some(after) = self.after() else { return Ok(rows) };
        match self.order {
            RowOrder::By(Direction::Ascending) => rows.retain(|row| row.position > *after),
            RowOrder::By(Direction::Descending) => rows.retain(|row| row.position < *after),
            // In the order of the values in the row.
            RowOrder::Any => match (&hit.key, &hit.primary).cmp(&(&after.key, &after.primary)) {
                Ordering::Less => rows.clear(),
                Ordering::Equal => {
                    let last = rows.iter().position(|row| row.position == *after);
                    rows.drain(..last.map_or(rows.len(), |last| last + 1));
                }
                Ordering::Greater => {}
            },
        }
        Ok(rows)
    }

    /// Whether the present range of values contains `value`.
    fn holds(&self, value: &Datum) -> bool {
        self.current.as_ref().is_none_or(|current| current.bounds.contains(value))
    }

    /// The values of `row` with the key of `hit`.
    fn values_under(&self, row: &Object, hit: &IndexHit) -> Vec<Datum> {
        let values = self.index.values(row).into_iter();
        values.filter(|(key, _)| key.bytes == hit.key).map(|(_, value)| value).collect()
    }

    fn row(&self, primary: &PrimaryKey) -> Result<Object, ReadError> {
        let row = self.snapshot.get(primary)?;
        row.ok_or_else(|| ReadError::CorruptMeta { what: format!("an entry of index {}", self.index.id()) })
    }
}
