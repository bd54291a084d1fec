//! How often a row is in the sequence that a feed follows.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cluster::{ChangedRow, IndexConfig, Interest, RowValues, ValuesOf, WantedValues};
use datum::{CorruptRow, Datum, KeyRange, Object, PrimaryKey};
use reql::Cancel;
use reql::geo::{LazyShape, Shape};
use shard::{Bounds, IndexDef, Side};
use storage::IndexId;

use crate::table::{IndexItems, IndexRead, IndexSearch};

/// The rule by which rows are in a sequence.
pub(crate) enum RowEntries {
    /// Each row is in it once.
    Once,
    /// `get_all` by the primary key: each row as often as its key was named.
    Copies(BTreeMap<PrimaryKey, u32>),
    /// Rows by a secondary index.
    Index(Box<IndexEntries>),
}

/// Rows by a secondary index: each as often as the index has it.
pub(crate) struct IndexEntries {
    id: IndexId,
    def: IndexDef,
    search: EntrySearch,
    /// The kind of item for each entry.
    items: IndexItems,
}

enum EntrySearch {
    /// Entries with a value within some bounds, each a number of times.
    Values(Arc<[(Bounds, u32)]>),
    /// Entries with one of these values, each a number of times: [`EntrySearch::Values`] of single values.
    Equal(Arc<[(Bounds, u32)]>, HashMap<Datum, u32>),
    /// Shapes that intersect this one.
    Intersecting(LazyShape),
}

impl RowEntries {
    /// The values of the row by which a sequence in the order of an index has it, one for each time. In the order of the primary
    /// key the value is null, and the key alone orders.
    pub fn values(&self, key: &PrimaryKey, row: Option<&Object>, cancel: &Cancel) -> Vec<Datum> {
        match (self, row) {
            (RowEntries::Index(index), Some(row)) => index.values(index.def.datums(row)),
            _ => vec![Datum::Null; self.times(key, row, cancel)],
        }
    }

    /// The value by which the sequence has its place for the row; `None` in the order of the primary key.
    pub fn order_value(&self, row: &Object) -> Option<Datum> {
        match self {
            RowEntries::Index(index) => index.def.datums(row).into_iter().next(),
            RowEntries::Once | RowEntries::Copies(_) => None,
        }
    }

    /// The items of the sequence that come from the row.
    pub fn items(&self, key: &PrimaryKey, row: Option<&Object>, cancel: &Cancel) -> Vec<Datum> {
        let Some(row) = row else { return Vec::new() };
        let whole = || Datum::Object(row.clone());
        match self {
            RowEntries::Index(index) if index.items != IndexItems::Rows => {
                let item = |value| match index.items {
                    IndexItems::Pairs => Datum::from(vec![value, whole()]),
                    _ => value,
                };
                index.values(index.def.datums(row)).into_iter().map(item).collect()
            }
            _ => vec![whole(); self.times(key, Some(row), cancel)],
        }
    }

    /// How often the row is in the sequence.
    pub fn times(&self, key: &PrimaryKey, row: Option<&Object>, cancel: &Cancel) -> usize {
        match (self, row) {
            (_, None) => 0,
            (RowEntries::Once, Some(_)) => 1,
            (RowEntries::Copies(copies), Some(_)) => copies.get(key).map_or(0, |times| *times as usize),
            (RowEntries::Index(index), Some(row)) => index.times(&index.def.datums(row), cancel),
        }
    }

    /// How often the rows before and after a change are in the sequence. Fails if one of them is damaged.
    pub fn times_of_change(&self, row: &ChangedRow, cancel: &Cancel) -> Result<(usize, usize), CorruptRow> {
        if let RowEntries::Index(index) = self {
            let values = row.values(&index.def)?;
            return Ok((index.times(&values.old, cancel), index.times(&values.new, cancel)));
        }
        let rows = row.objects()?;
        let times = |object: &Option<Object>| self.times(&row.key, object.as_ref(), cancel);
        Ok((times(&rows.old), times(&rows.new)))
    }
}

impl RowEntries {
    /// Adds bytes that tell these entries from others.
    pub fn add_to_digest(&self, bytes: &mut Vec<u8>) {
        match self {
            RowEntries::Once => {}
            RowEntries::Copies(copies) => copies.values().for_each(|times| bytes.extend(times.to_le_bytes())),
            RowEntries::Index(index) => {
                bytes.extend(index.id.0.to_le_bytes());
                bytes.push(index.items as u8);
                match &index.search {
                    EntrySearch::Values(all) | EntrySearch::Equal(all, _) => {
                        bytes.extend_from_slice(format!("{all:?}").as_bytes())
                    }
                    EntrySearch::Intersecting(shape) => {
                        bytes.extend_from_slice(shape.value().to_json_string().as_bytes());
                    }
                }
            }
        }
    }
}

impl IndexEntries {
    /// The entries that `read` of the index `config` finds; `None` if they cannot be followed.
    pub fn of(config: &IndexConfig, read: &IndexRead) -> Option<IndexEntries> {
        let search = match &read.search {
            IndexSearch::Values(bounds) => match single_values(bounds) {
                Some(values) => EntrySearch::Equal(bounds.clone(), values),
                None => EntrySearch::Values(bounds.clone()),
            },
            IndexSearch::Intersecting(shape) => EntrySearch::Intersecting(shape.clone()),
            IndexSearch::Nearest(_) => return None,
        };
        let def = IndexDef::new(config.id, config.kind, &config.function);
        Some(IndexEntries { id: config.id, def, search, items: read.items })
    }

    /// The change of rows in which the feed is interested. `range` is the one of their primary keys.
    pub fn interest(&self, range: KeyRange) -> Interest {
        let wanted = match &self.search {
            EntrySearch::Equal(_, times) => WantedValues::Equal(times.keys().cloned().collect()),
            EntrySearch::Values(all) if !all.iter().any(|(bounds, _)| is_everything(bounds)) => {
                WantedValues::Within(all.iter().map(|(bounds, _)| bounds.clone()).collect())
            }
            _ => return Interest::Range(range),
        };
        Interest::Values(Arc::new(RowValues { range, of: ValuesOf::Index(self.def.clone()), wanted }))
    }

    /// The values within the bounds, each as often as the sequence has it, of the `values` of a row in the index.
    fn values(&self, values: Vec<Datum>) -> Vec<Datum> {
        let mut found = Vec::new();
        for value in values {
            let times = self.times_of(&value);
            found.extend(std::iter::repeat_n(value, times));
        }
        found
    }

    /// How often the sequence has an entry with this value.
    fn times_of(&self, value: &Datum) -> usize {
        match &self.search {
            EntrySearch::Values(all) => {
                let within = all.iter().filter(|(bounds, _)| bounds.contains(value));
                within.map(|(_, times)| *times as usize).sum()
            }
            EntrySearch::Equal(_, times) => times.get(value).map_or(0, |times| *times as usize),
            EntrySearch::Intersecting(_) => 0,
        }
    }

    /// How often the sequence has a row with these values in the index.
    fn times(&self, values: &[Datum], cancel: &Cancel) -> usize {
        match &self.search {
            EntrySearch::Intersecting(wanted) => {
                let Ok(wanted) = wanted.get(cancel) else { return 0 };
                let found = values.iter().filter_map(|value| Shape::of(value, cancel).ok());
                let intersects =
                    |shape: &Shape| !shape.is_empty() && wanted.intersects(shape, cancel).unwrap_or(false);
                found.filter(intersects).count()
            }
            _ => values.iter().map(|value| self.times_of(value)).sum(),
        }
    }
}

/// Whether the bounds contain every value that a row can have.
fn is_everything(bounds: &Bounds) -> bool {
    matches!((&bounds.left, &bounds.right), (Datum::MinVal, Datum::MaxVal))
}

/// The values of these bounds, and how often each is wanted; `None` if one of the bounds has several values.
fn single_values(all: &[(Bounds, u32)]) -> Option<HashMap<Datum, u32>> {
    let mut values = HashMap::with_capacity(all.len());
    for (bounds, times) in all {
        let Bounds { left, left_side, right, right_side } = bounds;
        if (left, *left_side, *right_side) != (right, Side::Closed, Side::Closed) {
            return None;
        }
        *values.entry(left.clone()).or_default() += times;
    }
    Some(values)
}
