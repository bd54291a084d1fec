//! The durable bytes of one file, and the changes since then.

use rand::Rng;
use rand::rngs::StdRng;

/// The unit in which a disk writes.
const SECTOR_BYTES: u64 = 512;

/// A change of a file's bytes.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { offset: u64, data: Vec<u8> },
    Resize { len: u64 },
}

/// The content of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    durable: Vec<u8>,
    /// The changes since then, each with its position in the journal.
    pending: Vec<(u64, Change)>,
    /// Whether its writes are not recorded.
    pub(super) is_buffered: bool,
}

impl Content {
    pub(super) fn durable(bytes: Vec<u8>) -> Content {
        Content { durable: bytes, ..Content::default() }
    }

    pub(super) fn change(&mut self, at: u64, change: Change) {
        self.pending.push((at, change));
    }

    /// Takes back the change that was recorded at this position, if it is the last one.
    pub(super) fn take_back(&mut self, at: u64) -> Option<Change> {
        self.pending.pop_if(|(pending_at, _)| *pending_at == at).map(|(_, change)| change)
    }

    /// Everything recorded before `upto` is durable.
    pub(super) fn sync(&mut self, upto: u64) {
        let done = self.pending.partition_point(|(at, _)| *at < upto);
        for (_, change) in self.pending.drain(..done) {
            apply(&mut self.durable, &change);
        }
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The bytes that a process reads.
    pub(super) fn current(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        self.pending.iter().for_each(|(_, change)| apply(&mut bytes, change));
        bytes
    }

    /// The bytes after a power loss: the durable ones and none, the first, some, or all of the changes since then.
    pub(super) fn survive(&self, random: &mut StdRng) -> Vec<u8> {
        match random.random_range(0..4) {
            0 => self.durable.clone(),
            1 => self.prefix(random),
            2 => self.sectors(random),
            _ => self.current(),
        }
    }

    /// Some changes in order; of the last one, a write, some bytes.
    fn prefix(&self, random: &mut StdRng) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let count = random.random_range(0..=self.pending.len());
        self.pending[..count].iter().for_each(|(_, change)| apply(&mut bytes, change));
        if let Some((_, Change::Write { offset, data })) = self.pending.get(count) {
            let kept = random.random_range(0..=data.len());
            write(&mut bytes, *offset, &data[..kept]);
        }
        bytes
    }

    /// Any sectors of any change. The length is one that the file had since it was durable; zeros are in place of the bytes
    /// that were never written.
    fn sectors(&self, random: &mut StdRng) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let mut len = bytes.len() as u64;
        let mut lens = vec![len];
        for (_, change) in &self.pending {
            match change {
                Change::Resize { len: resized } => {
                    len = *resized;
                    if random.random_bool(0.5) {
                        apply(&mut bytes, change);
                    }
                }
                Change::Write { offset, data } => {
                    len = len.max(offset + data.len() as u64);
                    let mut start = 0;
                    while start < data.len() {
                        let at = offset + start as u64;
                        let room = (SECTOR_BYTES - at % SECTOR_BYTES) as usize;
                        let end = data.len().min(start + room);
                        if random.random_bool(0.5) {
                            write(&mut bytes, at, &data[start..end]);
                        }
                        start = end;
                    }
                }
            }
            lens.push(len);
        }
        let len = lens[random.random_range(0..lens.len())];
        bytes.resize(len as usize, 0);
        bytes
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { offset, data } => write(bytes, *offset, data),
        Change::Resize { len } => bytes.resize(*len as usize, 0),
    }
}

fn write(bytes: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let start = offset as usize;
    let end = start + data.len();
    if bytes.len() < end && !data.is_empty() {
        bytes.resize(end, 0);
    }
    if !data.is_empty() {
        bytes[start..end].copy_from_slice(data);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::SeedableRng;

    use super::*;

    fn written(offset: u64, data: &[u8]) -> Change {
        Change::Write { offset, data: data.to_vec() }
    }

    #[test]
    fn synced_bytes_survive_and_others_may_or_may_not() {
        let mut content = Content::default();
        content.change(0, written(0, &[1; 1000]));
        content.sync(10);
        content.change(10, written(1000, &[2; 2000]));
        let mut survivors = HashSet::new();
        for seed in 0..200 {
            let kept = content.survive(&mut StdRng::seed_from_u64(seed));
            assert!(kept.len() >= 1000 && kept[..1000].iter().all(|byte| *byte == 1), "seed {seed}");
            assert!(kept[1000..].iter().all(|byte| [0, 2].contains(byte)), "seed {seed}");
            survivors.insert(kept);
        }
        let none = vec![1; 1000];
        let holes = survivors.iter().filter(|kept| kept.contains(&0)).count();
        assert!(survivors.contains(&none) && survivors.contains(&content.current()));
        assert!(holes > 1 && survivors.len() > 20, "{} contents, {holes} with holes", survivors.len());
    }

    #[test]
    fn a_sync_covers_the_changes_before_its_beginning() {
        let mut content = Content::default();
        content.change(0, written(0, b"a"));
        content.change(20, written(1, b"b"));
        content.sync(20);
        assert!(content.has_pending());
        assert_eq!(content.durable, b"a");
        content.sync(21);
        assert_eq!(content.durable, b"ab");
    }

    #[test]
    fn a_lost_truncation_brings_bytes_back() {
        let mut content = Content::durable(b"12345678".to_vec());
        content.change(0, Change::Resize { len: 2 });
        let kept: HashSet<_> =
            (0..100).map(|seed| content.survive(&mut StdRng::seed_from_u64(seed))).collect();
        assert!(kept.contains(b"12".as_slice()) && kept.contains(b"12345678".as_slice()), "{kept:?}");
    }
}
