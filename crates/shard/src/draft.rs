//! What a write wants to do, before the log has heard of it.

use std::collections::HashMap;

use bytes::Bytes;
use datum::{Object, PrimaryKey, row};

use crate::entry::EntryWriter;
use crate::latch::{Held, Proposed};

/// What is to become of a row.
#[derive(Clone, Debug)]
pub enum Decision {
    /// It stays as it is, or stays absent.
    Unchanged,
    /// It becomes this object, whose primary key is the row's key.
    Put(Object),
    /// It goes. The same as unchanged if it is not there.
    Delete,
}

/// The changes of one entry and what they were evaluated on.
#[derive(Default)]
pub(crate) struct Draft {
    changes: Vec<DraftChange>,
    // The last change of each key, when there may be several.
    last: HashMap<PrimaryKey, usize>,
    dependencies: Vec<u64>,
}

struct DraftChange {
    key: PrimaryKey,
    row: Option<Object>,
    existed: bool,
}

impl Draft {
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

    /// Adds what was decided for `key`.
    pub(crate) fn add(&mut self, key: &PrimaryKey, existed: bool, decision: Decision) {
        let row = match decision {
            Decision::Put(object) => Some(object),
            Decision::Delete if existed => None,
            Decision::Delete | Decision::Unchanged => return,
        };
        if let [first] = &self.changes[..] {
            self.last.insert(first.key.clone(), 0);
        }
        if !self.changes.is_empty() {
            self.last.insert(key.clone(), self.changes.len());
        }
        self.changes.push(DraftChange { key: key.clone(), row, existed });
    }

    /// Whether there is neither a change nor anything that its answer depends on.
    pub(crate) fn is_nothing(&self) -> bool {
        self.changes.is_empty() && self.dependencies.is_empty()
    }

    /// The entry as the log gets it.
    pub(crate) fn encode(&self, incarnation: u64, sequence: u64) -> Bytes {
        let rows: Vec<_> =
            self.changes.iter().map(|change| change.row.as_ref().map(row::encode_shared)).collect();
        let with_rows = || self.changes.iter().zip(rows.iter().map(Option::as_deref));
        let bytes = with_rows().map(|(change, row)| EntryWriter::change_bytes(&change.key, row)).sum();
        let mut writer = EntryWriter::new(incarnation, sequence, &self.dependencies, bytes);
        for (change, row) in with_rows() {
            writer.change(&change.key, row, change.existed);
        }
        writer.finish()
    }

    /// Makes the changed rows the newest proposed ones; their keys, each once.
    pub(crate) fn publish(self, held: &mut Held<'_>, sequence: u64) -> Vec<PrimaryKey> {
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
