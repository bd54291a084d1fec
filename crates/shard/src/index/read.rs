//! Rows by an index: entries of a snapshot in order, each with its row of the same snapshot.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use datum::{Datum, KeyError, Object, PrimaryKey};
use storage::{Direction, IndexHit, IndexId, IndexScan, IndexSpan, ReadError, TableSnapshot};

use super::def::IndexDef;
use super::range::Bounds;

/// Whether the order of the rows matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// It does not.
    Any,
    /// By value, then by primary key, one way or the other.
    By(Direction),
}

/// What is read of an index. Plain data.
#[derive(Clone, Debug)]
pub struct IndexQuery {
    /// The index.
    pub index: IndexId,
    /// The values whose rows are wanted, and how many times each.
    pub wanted: Arc<[(Bounds, u32)]>,
    /// The order of the rows. Only one range of values can be read in order.
    pub order: RowOrder,
    /// How many rows with one cut key may be held to be sorted.
    pub sorted_max: usize,
}

/// Why an index could not be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IndexError {
    /// The shard does not know it (yet, or any more).
    #[error("there is no index {0}")]
    Missing(IndexId),
    /// Not every row has its entries yet.
    #[error("index {0} is not built yet")]
    NotReady(IndexId),
    /// A bound has no place among index values.
    #[error(transparent)]
    Bound(#[from] KeyError),
    /// Too many rows have one cut key to be sorted.
    #[error("more than {most} rows have the same cut key")]
    TooMany {
        /// How many may have.
        most: usize,
        /// A value of one of the rows.
        value: Datum,
    },
    /// An entry or its row could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Where a row stands in the order of an index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexPlace {
    /// The index key.
    pub key: Bytes,
    /// The value, if the key was cut.
    pub value: Option<Datum>,
    /// The row's key.
    pub primary: PrimaryKey,
}

impl IndexPlace {
    /// The place of a row whose order does not matter.
    #[must_use]
    pub fn none() -> IndexPlace {
        IndexPlace { key: Bytes::new(), value: None, primary: PrimaryKey(Bytes::new()) }
    }
}

/// A row found by an index.
#[derive(Clone, Debug)]
pub struct IndexRow {
    /// Where it stands.
    pub place: IndexPlace,
    /// The row.
    pub row: Object,
    /// How many times it is wanted under this value.
    pub times: u64,
}

impl IndexRow {
    /// The index value it was found under.
    #[must_use]
    pub fn value(&self, index: &IndexDef) -> Datum {
        match &self.place.value {
            Some(value) => value.clone(),
            None => {
                let mut values = index.values(&self.row).into_iter();
                values.find(|(key, _)| key.bytes == self.place.key).map_or(Datum::Null, |(_, value)| value)
            }
        }
    }
}

/// Rows of a part of a table by an index, being read.
pub struct IndexRows {
    snapshot: TableSnapshot,
    index: Arc<IndexDef>,
    order: RowOrder,
    sorted_max: usize,
    // The ranges still to be read, the next one last.
    waiting: Vec<(Bounds, u32, IndexSpan)>,
    current: Option<Current>,
    // Rows in hand: those of a cut key.
    ready: VecDeque<IndexRow>,
}

struct Current {
    bounds: Bounds,
    times: u32,
    scan: IndexScan,
    // An entry that was read too far.
    next: Option<IndexHit>,
}

impl IndexRows {
    /// Begins to read `query` in `snapshot`.
    pub(crate) fn new(
        snapshot: TableSnapshot,
        index: Arc<IndexDef>,
        query: &IndexQuery,
    ) -> Result<IndexRows, IndexError> {
        let waiting = query.wanted.iter().rev();
        let waiting = waiting.map(|(bounds, times)| Ok((bounds.clone(), *times, bounds.span()?)));
        Ok(IndexRows {
            snapshot,
            index,
            order: query.order,
            sorted_max: query.sorted_max,
            waiting: waiting.collect::<Result<_, KeyError>>()?,
            current: None,
            ready: VecDeque::new(),
        })
    }

    /// The index.
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
                self.gather_cut(hit, times)?;
                continue;
            }
            let row = self.row(&hit.primary)?;
            let times = u64::from(hit.entry.times) * u64::from(times);
            let place = IndexPlace { key: hit.key, value: None, primary: hit.primary };
            return Ok(Some(IndexRow { place, row, times }));
        }
    }

    /// The number of rows that are left. Looks into rows only where keys were cut.
    pub fn count(mut self) -> Result<u64, IndexError> {
        let mut count = self.ready.iter().map(|row| row.times).sum();
        while let Some((hit, times)) = self.next_hit()? {
            if hit.entry.truncated {
                let bounds = self.bounds();
                let values = self.cut_values(&hit)?;
                count +=
                    values.iter().filter(|value| bounds.contains(value)).count() as u64 * u64::from(times);
            } else {
                count += u64::from(hit.entry.times) * u64::from(times);
            }
        }
        Ok(count)
    }

    /// Whether there are more than `most` entries left. Looks at no row, and not much further.
    pub fn has_more_than(mut self, most: u64) -> Result<bool, IndexError> {
        for _ in 0..=most {
            if self.next_hit()?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The next entry, and how many times its rows are wanted.
    fn next_hit(&mut self) -> Result<Option<(IndexHit, u32)>, ReadError> {
        loop {
            if let Some(current) = &mut self.current {
                let next = match current.next.take() {
                    Some(next) => Some(next),
                    None => current.scan.next()?,
                };
                if let Some(hit) = next {
                    return Ok(Some((hit, current.times)));
                }
            }
            let Some((bounds, times, span)) = self.waiting.pop() else { return Ok(None) };
            let direction = match self.order {
                RowOrder::By(direction) => direction,
                RowOrder::Any => Direction::Ascending,
            };
            let scan = match self.current.take() {
                Some(Current { mut scan, .. }) => {
                    scan.restart(&span);
                    scan
                }
                // The only range, or the first of several.
                None if self.waiting.is_empty() => {
                    self.snapshot.scan_index(self.index.id(), &span, direction)
                }
                None => {
                    let mut scan = self.snapshot.scan_index(self.index.id(), &IndexSpan::all(), direction);
                    scan.restart(&span);
                    scan
                }
            };
            self.current = Some(Current { bounds, times, scan, next: None });
        }
    }

    fn bounds(&self) -> Bounds {
        self.current.as_ref().map_or_else(Bounds::all, |current| current.bounds.clone())
    }

    /// Makes the rows of the cut key of `hit` ready, as far as their values are wanted: all of them
    /// in order if that matters.
    fn gather_cut(&mut self, hit: IndexHit, times: u32) -> Result<(), IndexError> {
        let bounds = self.bounds();
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
            let row = self.row(&hit.primary)?;
            for value in self.values_under(&row, &hit) {
                if bounds.contains(&value) {
                    let place =
                        IndexPlace { key: key.clone(), value: Some(value), primary: hit.primary.clone() };
                    rows.push(IndexRow { place, row: row.clone(), times: u64::from(times) });
                }
            }
            let RowOrder::By(_) = self.order else { break };
            if rows.len() > self.sorted_max
                && let Some(value) = rows.pop().and_then(|row| row.place.value)
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
            RowOrder::By(Direction::Ascending) => rows.sort_by(|a, b| a.place.cmp(&b.place)),
            RowOrder::By(Direction::Descending) => rows.sort_by(|a, b| b.place.cmp(&a.place)),
        }
        self.ready.extend(rows);
        Ok(())
    }

    fn cut_values(&self, hit: &IndexHit) -> Result<Vec<Datum>, ReadError> {
        Ok(self.values_under(&self.row(&hit.primary)?, hit))
    }

    /// The values of `row` whose key is that of `hit`.
    fn values_under(&self, row: &Object, hit: &IndexHit) -> Vec<Datum> {
        let values = self.index.values(row).into_iter();
        values.filter(|(key, _)| key.bytes == hit.key).map(|(_, value)| value).collect()
    }

    fn row(&self, primary: &PrimaryKey) -> Result<Object, ReadError> {
        let row = self.snapshot.get(primary)?;
        row.ok_or_else(|| ReadError::CorruptMeta { what: format!("an entry of index {}", self.index.id()) })
    }
}
