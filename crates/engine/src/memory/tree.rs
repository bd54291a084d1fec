//! The maps of the memory engine. Each key has its newest value and the older values that a live snapshot or the last
//! flush can still see.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{Batch, Change, ScanRange, Space, scan_range};

/// A point in the history of a tree: the number of batches written before it.
pub(super) type Moment = u64;

/// All spaces of a memory engine.
#[derive(Default)]
pub(super) struct Tree {
    spaces: [BTreeMap<Bytes, Versions>; Space::ALL.len()],
    now: Moment,
    flushed: Moment,
    // The number of live snapshots at each moment.
    readers: BTreeMap<Moment, usize>,
    // The keys with more than one version.
    multi_version: Vec<(Space, Bytes)>,
    bytes: u64,
}

/// Values of one key, oldest first; `None` is a deletion. Never empty, never only a deletion.
type Versions = Vec<(Moment, Option<Bytes>)>;

impl Tree {
    pub(super) fn newest(&self, space: Space, key: &[u8]) -> Option<Bytes> {
        self.spaces[space as usize].get(key)?.last()?.1.clone()
    }

    /// The value as of the last flush.
    pub(super) fn durable(&self, space: Space, key: &[u8]) -> Option<Bytes> {
        self.at(self.flushed, space, key)
    }

    pub(super) fn at(&self, moment: Moment, space: Space, key: &[u8]) -> Option<Bytes> {
        visible(self.spaces[space as usize].get(key)?, moment).cloned()
    }

    /// The pairs of `range` as of `moment`; can be iterated from both ends.
    pub(super) fn pairs<'a>(
        &'a self,
        moment: Moment,
        space: Space,
        range: ScanRange<'a>,
    ) -> Option<impl DoubleEndedIterator<Item = (&'a Bytes, &'a Bytes)>> {
        if scan_range::is_empty(range) {
            return None;
        }
        let found = self.spaces[space as usize].range::<[u8], _>(range);
        Some(found.filter_map(move |(key, versions)| Some((key, visible(versions, moment)?))))
    }

    pub(super) fn newest_pairs(&self, space: Space, range: ScanRange<'_>) -> Vec<(Bytes, Bytes)> {
        let pairs = self.pairs(self.now, space, range);
        pairs.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Replaces `value`, if it is still the newest under `key`, in the place where it was written.
    pub(super) fn rewrite(&mut self, space: Space, key: &[u8], value: &Bytes, rewritten: Bytes) {
        let versions = self.spaces[space as usize].get_mut(key);
        let newest = versions.and_then(|versions| versions.last_mut());
        if let Some((_, Some(newest))) = newest
            && newest == value
        {
            self.bytes += pair_bytes(key, &rewritten);
            self.bytes -= pair_bytes(key, newest);
            *newest = rewritten;
        }
    }

    pub(super) fn apply(&mut self, batch: &Batch) {
        self.now += 1;
        for change in batch.changes() {
            match change {
                Change::Put { space, key, value } => self.set(space, key, Some(value.clone())),
                Change::Delete { space, key } => self.set(space, key, None),
                Change::DeleteRange { space, start, end } => {
                    let deleted =
                        self.spaces[space as usize].range::<[u8], _>(scan_range::half_open(start, end));
                    let deleted: Vec<Bytes> = deleted.map(|(key, _)| key.clone()).collect();
                    for key in deleted {
                        self.set(space, &key, None);
                    }
                }
            }
        }
    }

    /// Marks everything written up to `moment` as durable. A snapshot must hold that moment.
    pub(super) fn flush(&mut self, moment: Moment) {
        self.flushed = self.flushed.max(moment);
        self.sweep();
    }

    pub(super) fn as_of_last_flush(&self) -> Tree {
        let mut survivor = Tree { now: self.flushed, flushed: self.flushed, ..Tree::default() };
        for space in Space::ALL {
            for (key, versions) in &self.spaces[space as usize] {
                if let Some(value) = visible(versions, self.flushed) {
                    survivor.bytes += pair_bytes(key, value);
                    let versions = vec![(self.flushed, Some(value.clone()))];
                    survivor.spaces[space as usize].insert(key.clone(), versions);
                }
            }
        }
        survivor
    }

    /// Registers a reader of the present moment and returns the moment.
    pub(super) fn enter(&mut self) -> Moment {
        *self.readers.entry(self.now).or_default() += 1;
        self.now
    }

    pub(super) fn leave(&mut self, moment: Moment) {
        let count = self.readers.get_mut(&moment).expect("invariant: a reader leaves once");
        *count -= 1;
        if *count == 0 {
            let was_oldest = self.readers.first_key_value().map(|(oldest, _)| *oldest) == Some(moment);
            self.readers.remove(&moment);
            if was_oldest {
                self.sweep();
            }
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn keys(&self) -> u64 {
        self.spaces.iter().map(|space| space.len() as u64).sum()
    }

    pub(super) fn readers(&self) -> u64 {
        self.readers.values().map(|count| *count as u64).sum()
    }

    fn set(&mut self, space: Space, key: &[u8], value: Option<Bytes>) {
        let map = &mut self.spaces[space as usize];
        if let Some(versions) = map.get_mut(key) {
            let was_multi_version = versions.len() > 1;
            self.bytes += value.as_ref().map_or(0, |value| pair_bytes(key, value));
            versions.push((self.now, value));
            self.bytes -= prune(key, versions, &self.readers, self.flushed);
            match versions.len() {
                0 => drop(map.remove(key)),
                1 => {}
                _ if was_multi_version => {}
                _ => self.multi_version.push((space, Bytes::copy_from_slice(key))),
            }
        } else if let Some(value) = value {
            self.bytes += pair_bytes(key, &value);
            map.insert(Bytes::copy_from_slice(key), vec![(self.now, Some(value))]);
        }
    }

    /// Drops versions that are no longer visible.
    fn sweep(&mut self) {
        let mut multi_version = std::mem::take(&mut self.multi_version);
        multi_version.retain(|(space, key)| {
            let map = &mut self.spaces[*space as usize];
            let Some(versions) = map.get_mut(key) else { return false };
            self.bytes -= prune(key, versions, &self.readers, self.flushed);
            let left = versions.len();
            if left == 0 {
                map.remove(key);
            }
            left > 1
        });
        self.multi_version = multi_version;
    }
}

fn visible(versions: &Versions, moment: Moment) -> Option<&Bytes> {
    versions.iter().rev().find(|(written, _)| *written <= moment)?.1.as_ref()
}

/// Removes every version that no reader and no new snapshot sees, and that no crash restores. Returns the bytes freed.
fn prune(key: &[u8], versions: &mut Versions, readers: &BTreeMap<Moment, usize>, flushed: Moment) -> u64 {
    let mut freed_bytes = 0;
    let mut next = versions.len();
    let mut replaced_at = Moment::MAX;
    while next > 0 {
        next -= 1;
        let (written, value) = &versions[next];
        let seen = replaced_at == Moment::MAX
            || (*written..replaced_at).contains(&flushed)
            || readers.range(*written..replaced_at).next().is_some();
        replaced_at = *written;
        if !seen {
            freed_bytes += value.as_ref().map_or(0, |value| pair_bytes(key, value));
            versions.remove(next);
        }
    }
    // A deletion without an older version is the same as no entry.
    while versions.first().is_some_and(|(_, value)| value.is_none()) {
        versions.remove(0);
    }
    freed_bytes
}

fn pair_bytes(key: &[u8], value: &Bytes) -> u64 {
    (key.len() + value.len()) as u64
}
