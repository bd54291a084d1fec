//! The rows that a feed is interested in.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use datum::{CorruptRow, Datum, KeyRange, Object, PrimaryKey, Text};
use shard::{Bounds, ChangedRow, ChangedValues, IndexDef};
use storage::IndexId;

/// The rows that a feed is interested in.
#[derive(Clone, Debug)]
pub enum Interest {
    /// The rows under these keys.
    Keys(BTreeSet<PrimaryKey>),
    /// All rows of a range.
    Range(KeyRange),
    /// The rows that have one of some values.
    Values(Arc<RowValues>),
}

/// The rows of a range that have one of some values.
#[derive(Debug)]
pub struct RowValues {
    pub range: KeyRange,
    pub of: ValuesOf,
    pub wanted: WantedValues,
}

/// The values of which a row must have one to be of interest.
#[derive(Debug)]
pub enum WantedValues {
    /// Looked up by their hash.
    Equal(HashSet<Datum>),
    /// Each within one of the bounds at least.
    Within(Vec<Bounds>),
}

/// The values of a row by which feeds are found.
#[derive(Clone, Debug)]
pub enum ValuesOf {
    /// The values that an index has for the row.
    Index(IndexDef),
    /// The value of the field with this name, if the row has it.
    Field(Text),
}

/// Tells the values of one index or field from others.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum ValuesId {
    Index(IndexId),
    Field(Text),
}

impl ValuesOf {
    pub(super) fn id(&self) -> ValuesId {
        match self {
            ValuesOf::Index(index) => ValuesId::Index(index.id()),
            ValuesOf::Field(name) => ValuesId::Field(name.clone()),
        }
    }

    /// The values before and after a change. Fails if one of the rows is damaged.
    pub(super) fn of_change(&self, row: &ChangedRow) -> Result<Arc<ChangedValues>, CorruptRow> {
        match self {
            ValuesOf::Index(index) => row.values(index),
            ValuesOf::Field(name) => {
                let rows = row.objects()?;
                let of = |row: &Option<Object>| row.iter().filter_map(|row| row.get(name)).collect();
                Ok(Arc::new(ChangedValues { old: of(&rows.old), new: of(&rows.new) }))
            }
        }
    }
}

impl WantedValues {
    fn contains(&self, value: &Datum) -> bool {
        match self {
            WantedValues::Equal(values) => values.contains(value),
            WantedValues::Within(bounds) => bounds.iter().any(|bounds| bounds.contains(value)),
        }
    }
}

impl Interest {
    /// Whether the change is of interest. True also if that cannot be known because the row is damaged.
    pub(super) fn contains(&self, row: &ChangedRow) -> bool {
        match self {
            Interest::Range(range) => range.contains(&row.key),
            Interest::Keys(keys) => keys.contains(&row.key),
            Interest::Values(wanted) => {
                let RowValues { range, of, wanted } = &**wanted;
                let is_found = |found: &ChangedValues| {
                    found.old.iter().chain(&found.new).any(|value| wanted.contains(value))
                };
                range.contains(&row.key) && of.of_change(row).map_or(true, |found| is_found(&found))
            }
        }
    }

    /// The part of `range` that may have such rows; `None` if no row there is of interest.
    pub(crate) fn within(&self, range: &KeyRange) -> Option<KeyRange> {
        let within = |own: &KeyRange| Some(own.intersect(range)).filter(|part| !part.is_empty());
        match self {
            Interest::Range(own) => within(own),
            Interest::Values(wanted) => within(&wanted.range),
            Interest::Keys(keys) => keys.iter().any(|key| range.contains(key)).then(|| range.clone()),
        }
    }
}
