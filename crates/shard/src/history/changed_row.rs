//! A changed row, decoded at most once.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use datum::row::{self, CorruptRow};
use datum::{Datum, Object, PrimaryKey};
use parking_lot::Mutex;
use storage::IndexId;

use crate::index::IndexDef;

/// A change of a row. What readers compute from it (the decoded rows, the values of an index) is kept, so that all readers
/// share it.
#[derive(Debug)]
pub struct ChangedRow {
    pub key: PrimaryKey,
    /// The stored bytes of the row before (`docs/formats/row.md`); `None` if there was none.
    pub old: Option<Bytes>,
    /// The stored bytes of the row after; `None` if it was deleted.
    pub new: Option<Bytes>,
    objects: OnceLock<Result<ChangedObjects, CorruptRow>>,
    values: Mutex<Vec<(IndexId, Arc<ChangedValues>)>>,
}

/// The decoded rows before and after a change.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedObjects {
    pub old: Option<Object>,
    pub new: Option<Object>,
}

/// The values of an index for the rows before and after a change: [`IndexDef::datums`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangedValues {
    pub old: Vec<Datum>,
    pub new: Vec<Datum>,
}

impl ChangedRow {
    /// The change of the row under `key` from `old` to `new`, which are stored bytes.
    #[must_use]
    pub fn new(key: PrimaryKey, old: Option<Bytes>, new: Option<Bytes>) -> ChangedRow {
        ChangedRow { key, old, new, objects: OnceLock::new(), values: Mutex::default() }
    }

    /// The decoded rows. Fails if one of them is damaged.
    pub fn objects(&self) -> Result<&ChangedObjects, CorruptRow> {
        let decode = |bytes: &Option<Bytes>| bytes.clone().map(row::decode).transpose();
        let objects = self
            .objects
            .get_or_init(|| Ok(ChangedObjects { old: decode(&self.old)?, new: decode(&self.new)? }));
        objects.as_ref().map_err(|error| *error)
    }

    /// The values of an index of the row's table. Fails if one of the rows is damaged.
    pub fn values(&self, index: &IndexDef) -> Result<Arc<ChangedValues>, CorruptRow> {
        let objects = self.objects()?;
        let mut known = self.values.lock();
        if let Some((_, values)) = known.iter().find(|(id, _)| *id == index.id()) {
            return Ok(values.clone());
        }
        let of = |row: &Option<Object>| row.as_ref().map(|row| index.datums(row)).unwrap_or_default();
        let values = Arc::new(ChangedValues { old: of(&objects.old), new: of(&objects.new) });
        known.push((index.id(), values.clone()));
        Ok(values)
    }
}

impl PartialEq for ChangedRow {
    fn eq(&self, other: &ChangedRow) -> bool {
        (&self.key, &self.old, &self.new) == (&other.key, &other.old, &other.new)
    }
}

impl Eq for ChangedRow {}
