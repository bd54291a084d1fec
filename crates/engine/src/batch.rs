//! A batch of changes that an engine applies atomically.

use std::ops::Range;

use bytes::Bytes;

/// A separate, sorted set of keys. All spaces share batches, snapshots and flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Documents.
    Rows,
    /// Secondary index entries.
    Index,
    /// Positions, counts, dictionaries: small and often overwritten.
    Meta,
    /// Applied log entries for changefeeds. Keys ascend over time, and nothing is overwritten or deleted: the engine may
    /// forget the oldest pairs once they exceed its limits for this space.
    History,
}

impl Space {
    pub const ALL: [Space; 4] = [Space::Rows, Space::Index, Space::Meta, Space::History];

    /// The space's name on disk.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Space::Rows => "rows",
            Space::Index => "index",
            Space::Meta => "meta",
            Space::History => "history",
        }
    }
}

/// One change of a batch. Keys are borrowed from the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Store `value` under `key`.
    Put { space: Space, key: &'a [u8], value: &'a Bytes },
    /// Delete `key`, which need not exist.
    Delete { space: Space, key: &'a [u8] },
    /// Delete every key from `start` up to and not including `end`.
    DeleteRange {
        space: Space,
        /// The first key that is deleted.
        start: &'a [u8],
        /// The first key that stays.
        end: &'a [u8],
    },
}

/// Changes in the order in which they are applied. Keys are copied in, values are shared.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    // Keys lie one after another in one buffer: a batch of a thousand rows makes a few allocations.
    keys: Vec<u8>,
    steps: Vec<Step>,
    value_bytes: usize,
}

#[derive(Clone, Debug)]
enum Step {
    Put { space: Space, key: Range<usize>, value: Bytes },
    Delete { space: Space, key: Range<usize> },
    DeleteRange { space: Space, start: Range<usize>, end: Range<usize> },
}

impl Batch {
    /// A batch without changes.
    #[must_use]
    pub fn new() -> Self {
        Batch::default()
    }

    /// Stores `value` under `key`. The batch keeps a reference to the value until it is written.
    pub fn put(&mut self, space: Space, key: &[u8], value: Bytes) {
        self.put_joined(space, &[key], value);
    }

    /// Stores `value` under the concatenation of `parts`.
    pub fn put_joined(&mut self, space: Space, parts: &[&[u8]], value: Bytes) {
        self.value_bytes += value.len();
        let key = self.keep(parts);
        self.steps.push(Step::Put { space, key, value });
    }

    /// Deletes `key`, which need not exist.
    pub fn delete(&mut self, space: Space, key: &[u8]) {
        self.delete_joined(space, &[key]);
    }

    /// Deletes the concatenation of `parts`.
    pub fn delete_joined(&mut self, space: Space, parts: &[&[u8]]) {
        let key = self.keep(parts);
        self.steps.push(Step::Delete { space, key });
    }

    /// Replaces change `index`, which concerns one key: it stores `value` there instead, or deletes the key.
    ///
    /// Used for a later change of the same key, so that the earlier one need not be kept. Only correct if no change in
    /// between deletes a range with that key.
    ///
    /// # Panics
    ///
    /// If there is no such change, or if it deletes a range.
    pub fn supersede(&mut self, index: usize, value: Option<Bytes>) {
        let (space, key) = match &self.steps[index] {
            Step::Put { space, key, value } => {
                self.value_bytes -= value.len();
                (*space, key.clone())
            }
            Step::Delete { space, key } => (*space, key.clone()),
            Step::DeleteRange { .. } => panic!("a deleted range is not a key"),
        };
        self.value_bytes += value.as_ref().map_or(0, Bytes::len);
        self.steps[index] = match value {
            Some(value) => Step::Put { space, key, value },
            None => Step::Delete { space, key },
        };
    }

    /// The change at `index`, or `None` if there are fewer changes.
    #[must_use]
    pub fn change(&self, index: usize) -> Option<Change<'_>> {
        self.steps.get(index).map(|step| self.read(step))
    }

    /// Deletes every key from `start` up to and not including `end`. Does nothing if `start >= end`.
    pub fn delete_range(&mut self, space: Space, start: &[u8], end: &[u8]) {
        if start < end {
            let start = self.keep(&[start]);
            let end = self.keep(&[end]);
            self.steps.push(Step::DeleteRange { space, start, end });
        }
    }

    /// The key that the change at `index` concerns, or `None` if the change deletes a range.
    pub(crate) fn key(&self, index: usize) -> Option<(Space, &[u8])> {
        match self.steps.get(index)? {
            Step::Put { space, key, .. } | Step::Delete { space, key } => {
                Some((*space, &self.keys[key.clone()]))
            }
            Step::DeleteRange { .. } => None,
        }
    }

    /// Whether any range is deleted.
    pub(crate) fn deletes_ranges(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::DeleteRange { .. }))
    }

    /// The same changes, ascending by space and key. Only equivalent if every key occurs once and no range is deleted.
    pub(crate) fn in_key_order(&self) -> Batch {
        let mut order: Vec<usize> = (0..self.steps.len()).collect();
        order.sort_unstable_by_key(|index| self.key(*index));
        let mut ordered = Batch { keys: Vec::with_capacity(self.keys.len()), ..Batch::default() };
        ordered.steps.reserve(order.len());
        for index in order {
            match self.read(&self.steps[index]) {
                Change::Put { space, key, value } => ordered.put(space, key, value.clone()),
                Change::Delete { space, key } => ordered.delete(space, key),
                Change::DeleteRange { space, start, end } => ordered.delete_range(space, start, end),
            }
        }
        ordered
    }

    /// The changes, in order.
    pub fn changes(&self) -> impl ExactSizeIterator<Item = Change<'_>> {
        self.steps.iter().map(|step| self.read(step))
    }

    /// Number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Bytes of all keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.value_bytes
    }

    fn read<'a>(&'a self, step: &'a Step) -> Change<'a> {
        match step {
            Step::Put { space, key, value } => {
                Change::Put { space: *space, key: &self.keys[key.clone()], value }
            }
            Step::Delete { space, key } => Change::Delete { space: *space, key: &self.keys[key.clone()] },
            Step::DeleteRange { space, start, end } => Change::DeleteRange {
                space: *space,
                start: &self.keys[start.clone()],
                end: &self.keys[end.clone()],
            },
        }
    }

    fn keep(&mut self, parts: &[&[u8]]) -> Range<usize> {
        let start = self.keys.len();
        for part in parts {
            self.keys.extend_from_slice(part);
        }
        start..self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back_in_order() {
        let mut batch = Batch::new();
        batch.put_joined(Space::Rows, &[b"ta", b"ble"], Bytes::from_static(b"row"));
        batch.delete(Space::Index, b"old");
        batch.delete_range(Space::Meta, b"b", b"a");
        batch.delete_range(Space::Meta, b"a", b"b");
        let value = Bytes::from_static(b"row");
        assert_eq!(
            batch.changes().collect::<Vec<_>>(),
            vec![
                Change::Put { space: Space::Rows, key: b"table", value: &value },
                Change::Delete { space: Space::Index, key: b"old" },
                Change::DeleteRange { space: Space::Meta, start: b"a", end: b"b" },
            ]
        );
        assert_eq!(batch.bytes(), 5 + 3 + 3 + 2);
    }
    #[test]
    fn a_superseded_change_does_the_later_thing() {
        let mut batch = Batch::new();
        batch.put(Space::Rows, b"a", Bytes::from_static(b"long"));
        batch.delete(Space::Rows, b"b");
        batch.supersede(1, Some(Bytes::from_static(b"new")));
        batch.supersede(0, None);
        let value = Bytes::from_static(b"new");
        assert_eq!(batch.change(0), Some(Change::Delete { space: Space::Rows, key: b"a" }));
        assert_eq!(batch.change(1), Some(Change::Put { space: Space::Rows, key: b"b", value: &value }));
        assert_eq!(batch.change(2), None);
        assert_eq!(batch.bytes(), 2 + 3);
    }
}
