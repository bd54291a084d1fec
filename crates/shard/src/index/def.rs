//! Definitions of indexes: the keys of a row are the values of the index's function, or the cells of its shapes.

use std::sync::Arc;

use bytes::Bytes;
use datum::key::secondary::{self, SecondaryKey};
use datum::{Datum, Object, Time, cancel};
use reql::geo::Shape;
use reql::geo::cover::{CellNumber, index_cells};
use reql::{ARRAY_LIMIT_DEFAULT, Cancel, Closure, Env, ResultKind, Scope, SeededRandom, StoredFunc};
use storage::{IndexChange, IndexEntry, IndexId};

/// The way in which the value of an index function becomes keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    /// The value is the key.
    One,
    /// Each item of an array is a key; any other value is one.
    Multi,
    /// The value is a shape, and the cells that cover it are the keys.
    Geo,
    /// Each item of an array is a shape; any other value is one.
    GeoMulti,
}

impl IndexKind {
    /// The kind with these two properties.
    #[must_use]
    pub fn of(is_multi: bool, is_geo: bool) -> IndexKind {
        match (is_multi, is_geo) {
            (false, false) => IndexKind::One,
            (true, false) => IndexKind::Multi,
            (false, true) => IndexKind::Geo,
            (true, true) => IndexKind::GeoMulti,
        }
    }

    /// Whether each item of an array is a value.
    #[must_use]
    pub fn is_multi(self) -> bool {
        matches!(self, IndexKind::Multi | IndexKind::GeoMulti)
    }

    /// Whether values are shapes.
    #[must_use]
    pub fn is_geo(self) -> bool {
        matches!(self, IndexKind::Geo | IndexKind::GeoMulti)
    }
}

/// An index: its id and its function.
#[derive(Clone, Debug)]
pub struct IndexDef {
    id: IndexId,
    kind: IndexKind,
    function: Closure,
}

/// The indexes that a shard should know.
#[derive(Clone, Debug, Default)]
pub struct IndexDefs {
    /// All existing indexes.
    pub list: Vec<IndexDef>,
    /// The highest id assigned so far: an index up to it that is not in the list was dropped.
    pub highest_assigned: IndexId,
}

/// An index function only sees the row, and must always give the same result, since that is removed from the index
/// later. So its evaluation is never cancelled.
static NEVER_CANCELLED: Cancel = Cancel::never();
static FIXED_RANDOM: SeededRandom = SeededRandom::new(0);

impl IndexDef {
    /// The index with this function, which gets a row.
    ///
    /// # Panics
    ///
    /// Never: a stored function has no free variables.
    #[must_use]
    pub fn new(id: IndexId, kind: IndexKind, function: &StoredFunc) -> IndexDef {
        let function = reql::closure(function.func(), &Scope::empty(), ResultKind::Datum)
            .expect("invariant: a stored function captures nothing");
        IndexDef { id, kind, function }
    }

    #[must_use]
    pub fn id(&self) -> IndexId {
        self.id
    }

    #[must_use]
    pub fn kind(&self) -> IndexKind {
        self.kind
    }

    /// The values of `row` in the index, with their keys, in the order of the function's result. A shape is returned
    /// once for each of its cells.
    ///
    /// A row for which the function fails has none, and values that cannot be keys are left out.
    /// Source: docs/reql-spec.md sections 4.2 and 12.
    #[must_use]
    pub fn values(&self, row: &Object) -> Vec<(SecondaryKey, Datum)> {
        let _uncancellable = cancel::scope(None);
        if self.kind.is_geo() {
            let of_cell = |cell: CellNumber| SecondaryKey { bytes: cell_key(cell), truncated: false };
            let cells = |value: Datum| {
                let shape = Shape::of(&value, &NEVER_CANCELLED).ok();
                let cells = shape.and_then(|shape| index_cells(&shape, &NEVER_CANCELLED).ok());
                cells.into_iter().flatten().map(move |cell| (of_cell(cell), value.clone()))
            };
            return self.shapes(row).into_iter().flat_map(cells).collect();
        }
        let keyed = |value: Datum| Some((secondary::encode(&value).ok()?, value));
        self.raw_values(row).into_iter().filter_map(keyed).collect()
    }

    /// The values of `row` without their keys: for a geospatial index its geometries ([`IndexDef::shapes`]), for another one
    /// those of [`IndexDef::values`].
    #[must_use]
    pub fn datums(&self, row: &Object) -> Vec<Datum> {
        match self.kind.is_geo() {
            true => self.shapes(row),
            false => self.values(row).into_iter().map(|(_, value)| value).collect(),
        }
    }

    /// The geometries of `row` that a geospatial index has if they are valid, in the order of the function's result.
    #[must_use]
    pub fn shapes(&self, row: &Object) -> Vec<Datum> {
        let _uncancellable = cancel::scope(None);
        let mut values = self.raw_values(row);
        values.retain(|value| matches!(value, Datum::Geometry(_)));
        values
    }

    /// The function's result for `row`, whether its values can be keys or not.
    fn raw_values(&self, row: &Object) -> Vec<Datum> {
        let env = Env {
            now: Time { epoch_seconds: 0.0, offset_minutes: 0 },
            array_limit: ARRAY_LIMIT_DEFAULT,
            cancel: &NEVER_CANCELLED,
            random: &FIXED_RANDOM,
            globals: &[],
            open: None,
        };
        let row = Datum::Object(row.clone());
        match self.function.call(std::slice::from_ref(&row), &env) {
            Err(_) => Vec::new(),
            Ok(Datum::Array(items)) if self.kind.is_multi() => items.into_vec(),
            Ok(value) => vec![value],
        }
    }

    /// The entries of `row`, ascending by key, each key once.
    #[must_use]
    pub fn entries(&self, row: &Object) -> Vec<(Bytes, IndexEntry)> {
        let mut keys: Vec<SecondaryKey> = self.values(row).into_iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        let mut entries: Vec<(Bytes, IndexEntry)> = Vec::with_capacity(keys.len());
        for key in keys {
            match entries.last_mut() {
                Some((last, entry)) if *last == key.bytes => entry.times += 1,
                _ => entries.push((key.bytes, IndexEntry { times: 1, truncated: key.truncated })),
            }
        }
        entries
    }
}

/// The key of a cell: its number, so that keys are in the order of cells.
pub(crate) fn cell_key(cell: CellNumber) -> Bytes {
    Bytes::copy_from_slice(&cell.to_be_bytes())
}

/// The changes of the entries of `indexes` when a row becomes another. Unchanged entries are left out.
pub(crate) fn changes(
    indexes: &[Arc<IndexDef>],
    old: Option<&Object>,
    new: Option<&Object>,
) -> Vec<IndexChange> {
    let mut changes = Vec::new();
    for index in indexes {
        let of = |row: Option<&Object>| row.map(|row| index.entries(row)).unwrap_or_default();
        let (mut old, mut new) = (of(old).into_iter().peekable(), of(new).into_iter().peekable());
        let mut change = |key, entry| changes.push(IndexChange { index: index.id, key, entry });
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => break,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some((old, _)), Some((new, _))) => old.cmp(new),
            };
            let gone = if order.is_le() { old.next() } else { None };
            let come = if order.is_ge() { new.next() } else { None };
            match (gone, come) {
                (Some((_, before)), Some((_, after))) if before == after => {}
                (_, Some((key, entry))) => change(key, Some(entry)),
                (Some((key, _)), None) => change(key, None),
                (None, None) => break,
            }
        }
    }
    changes
}
