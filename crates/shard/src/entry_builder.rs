//! Builds a log entry from the changes of a write.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use datum::{Object, PrimaryKey, row};
use storage::{IndexBuild, IndexChange, IndexId};

use crate::entry::EntryWriter;
use crate::index::{self, IndexDef};
use crate::latch::{HeldLatches, Proposed};

/// The decision of a write about one row.
#[derive(Clone, Debug)]
pub enum Decision {
    /// The row stays as it is, or absent.
    Unchanged,
    /// The row becomes this object, whose primary key is the row's key.
    Put(Object),
    /// The row is deleted. The same as `Unchanged` if it does not exist.
    Delete,
}

/// The changes of one entry, and the proposals they depend on.
#[derive(Default)]
pub(crate) struct EntryBuilder {
    changes: Vec<EntryChange>,
    // The index of the last change of each key, if there is more than one change.
    last: HashMap<PrimaryKey, usize>,
    dependencies: Vec<u64>,
    // Unchanged rows that get index entries.
    indexed: Vec<(PrimaryKey, Vec<IndexChange>)>,
    builds: Vec<(IndexId, IndexBuild)>,
    // Whether changes have the rows before them.
    has_old_rows: bool,
}

struct EntryChange {
    key: PrimaryKey,
    row: Option<Object>,
    existed: bool,
    // The row before, if the entry has such rows.
    old_row: Option<Object>,
    entries: Vec<IndexChange>,
}

impl EntryBuilder {
    /// An entry without changes. `has_old_rows`: changes will have the rows before them, because the history is on.
    pub(crate) fn new(has_old_rows: bool) -> EntryBuilder {
        EntryBuilder { has_old_rows, ..EntryBuilder::default() }
    }

    /// The row of `key` after the changes so far, if one of them concerns it.
    pub(crate) fn changed_row(&self, key: &PrimaryKey) -> Option<Option<Object>> {
        match &self.changes[..] {
            [] => None,
            [only] => (only.key == *key).then(|| only.row.clone()),
            several => self.last.get(key).map(|index| several[*index].row.clone()),
        }
    }

    /// Notes that a decision was made on the proposed row of proposal `sequence`.
    pub(crate) fn depend_on(&mut self, sequence: u64) {
        if !self.dependencies.contains(&sequence) {
            self.dependencies.push(sequence);
        }
    }

    /// Adds a decision about `key`, whose row is `old`, and the resulting changes of `indexes`.
    pub(crate) fn add(
        &mut self,
        key: &PrimaryKey,
        old: Option<&Object>,
        decision: Decision,
        indexes: &[Arc<IndexDef>],
    ) {
        let existed = old.is_some();
        let row = match decision {
            Decision::Put(object) => Some(object),
            Decision::Delete if existed => None,
            Decision::Delete | Decision::Unchanged => return,
        };
        let entries = index::changes(indexes, old, row.as_ref());
        if let [first] = &self.changes[..] {
            self.last.insert(first.key.clone(), 0);
        }
        if !self.changes.is_empty() {
            self.last.insert(key.clone(), self.changes.len());
        }
        let old_row = old.filter(|_| self.has_old_rows).cloned();
        self.changes.push(EntryChange { key: key.clone(), row, existed, old_row, entries });
    }

    /// Adds the entries that the unchanged `row` has in `indexes`.
    pub(crate) fn add_entries(&mut self, key: &PrimaryKey, row: &Object, indexes: &[Arc<IndexDef>]) {
        let entries = index::changes(indexes, None, Some(row));
        if !entries.is_empty() {
            self.indexed.push((key.clone(), entries));
        }
    }

    /// Adds the build record of an index.
    pub(crate) fn add_build(&mut self, index: IndexId, build: IndexBuild) {
        self.builds.push((index, build));
    }

    /// Whether there is no change and no proposal that the outcome depends on.
    pub(crate) fn is_nothing(&self) -> bool {
        self.changes.is_empty() && self.dependencies.is_empty() && self.builds.is_empty()
    }

    /// Whether a row is written rather than deleted.
    pub(crate) fn puts_rows(&self) -> bool {
        self.changes.iter().any(|change| change.row.is_some())
    }

    pub(crate) fn encode(&self, incarnation: u64, sequence: u64) -> Bytes {
        let encode = |row: &Option<Object>| row.as_ref().map(row::encode_shared);
        let rows: Vec<_> =
            self.changes.iter().map(|change| (encode(&change.row), encode(&change.old_row))).collect();
        let as_slices = || rows.iter().map(|(row, old_row)| (row.as_deref(), old_row.as_deref()));
        let with_rows = || self.changes.iter().zip(as_slices());
        let sizes =
            with_rows().map(|(change, (row, old_row))| EntryWriter::change_bytes(&change.key, row, old_row));
        let bytes = sizes.sum();
        let mut writer = EntryWriter::new(incarnation, sequence, &self.dependencies, bytes);
        for (change, (row, old_row)) in with_rows() {
            writer.change(&change.key, row, change.existed, old_row);
            change.entries.iter().for_each(|entry| writer.index_change(entry));
        }
        for (key, entries) in &self.indexed {
            writer.name_row(key);
            entries.iter().for_each(|entry| writer.index_change(entry));
        }
        for (index, build) in &self.builds {
            writer.index_build(*index, build);
        }
        writer.finish()
    }

    /// Publishes the changed rows as the newest proposed ones. Returns their keys, each once.
    pub(crate) fn publish(self, held: &mut HeldLatches<'_>, sequence: u64) -> Vec<PrimaryKey> {
        let mut keys = Vec::with_capacity(self.changes.len());
        for (index, change) in self.changes.into_iter().enumerate() {
            if self.last.get(&change.key).is_some_and(|last| *last != index) {
                continue;
            }
            keys.push(change.key.clone());
            held.propose(change.key, Proposed { sequence, row: change.row });
        }
        keys
    }
}
