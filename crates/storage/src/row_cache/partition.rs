//! One partition of the cache: a ring of slots, found through the hashes of their keys, with eviction by the clock
//! algorithm.

use datum::{Object, row};
use engine::prefetch;

use super::admission::RecentMisses;

/// The first bytes of a row that are prefetched; the hardware prefetcher then recognizes the rest.
const PREFETCH_BYTES: usize = 2 << 10;

#[derive(Default)]
pub(super) struct Partition {
    // A hash table with chaining: for each value of the lowest bits of a hash, the first slot of its chain; each slot
    // has the next. Its length is a power of two and at least twice the number of rows, so that chains are short. Not a
    // library's hash table, because the memory of a lookup must be accessible for prefetching.
    chains: Vec<u32>,
    rows: usize,
    // The slots of the clock: the hand moves around the ring and evicts rows that were not used since it last passed.
    ring: Vec<Option<CacheEntry>>,
    free: Vec<usize>,
    hand: usize,
    pub(super) bytes: usize,
    // The number of begun and ended changes.
    pub(super) epoch: u64,
    // Changes that have begun and not ended: meanwhile the engine may return either row.
    pub(super) changing: usize,
    pub(super) hits: u64,
    pub(super) misses: u64,
    recent_misses: RecentMisses,
    /// Admits every row, for comparison.
    #[cfg(test)]
    pub(super) admits_all: bool,
}

/// Marks the end of a chain.
const END: u32 = u32::MAX;
/// The initial number of chains of a partition.
const CHAINS_MIN: usize = 16;

/// Two cache lines, so that a row's key and the pointer to its bytes are loaded together.
#[repr(align(64))]
pub(super) struct CacheEntry {
    // The lower half of the key's hash.
    hash: u32,
    key: Key,
    // `None` while the row changes.
    pub(super) row: Option<Object>,
    bytes: usize,
    used: bool,
    // The number of changes of the row that have begun and not ended; until zero, the entry stays in its slot.
    pub(super) changing: u32,
    // The next slot of the chain.
    next: u32,
}

/// The engine's key of a row.
enum Key {
    Short { len: u8, bytes: [u8; Key::SHORT_BYTES] },
    Long(Box<[u8]>),
}

impl Key {
    /// Enough for a table id and a UUID.
    const SHORT_BYTES: usize = 62;

    fn new(key: &[u8]) -> Key {
        let mut bytes = [0; Key::SHORT_BYTES];
        match bytes.get_mut(..key.len()) {
            Some(short) => {
                short.copy_from_slice(key);
                Key::Short { len: key.len() as u8, bytes }
            }
            None => Key::Long(key.into()),
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Key::Short { len, bytes } => &bytes[..usize::from(*len)],
            Key::Long(key) => key,
        }
    }
}

impl CacheEntry {
    /// The length of the key in bytes.
    pub(super) fn key_len(&self) -> usize {
        self.key.as_bytes().len()
    }
}

impl Partition {
    /// The number of entries, including rows that are being changed.
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// Whether no change has begun or ended since the partition had this epoch, and none was under way then.
    pub(super) fn is_unchanged_since(&self, epoch: u64) -> bool {
        self.changing == 0 && self.epoch == epoch
    }

    /// Whether other rows are to be evicted for a row with this hash, which was missed.
    pub(super) fn admits(&mut self, hash: u64) -> bool {
        #[cfg(test)]
        if self.admits_all {
            return true;
        }
        self.recent_misses.take_or_add(hash, self.rows)
    }

    /// The slot of the row under `key`.
    pub(super) fn slot(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let mut slot = self.first_slot(hash)?;
        loop {
            let entry = self.ring.get(slot)?.as_ref()?;
            if entry.hash == hash as u32 && entry.key.as_bytes() == key {
                return Some(slot);
            }
            slot = entry.next as usize;
        }
    }

    /// The first slot of the chain of `hash`, if the table has chains.
    fn first_slot(&self, hash: u64) -> Option<usize> {
        self.chains.get(self.chain(hash as u32)).map(|slot| *slot as usize)
    }

    /// The chain of rows with this hash.
    fn chain(&self, hash: u32) -> usize {
        hash as usize & self.chains.len().wrapping_sub(1)
    }

    /// Prefetches the head of the chain of this hash.
    pub(super) fn prefetch_chain(&self, hash: u64) {
        if let Some(first) = self.chains.get(self.chain(hash as u32)) {
            prefetch(first);
        }
    }

    /// Prefetches the slot that probably has the row with this hash.
    pub(super) fn prefetch_slot(&self, hash: u64) {
        if let Some(entry) = self.first_slot(hash).and_then(|slot| self.ring.get(slot)) {
            prefetch(entry);
        }
    }

    /// Prefetches the beginning of the row in `slot`, if it is stored text.
    pub(super) fn prefetch_row(&self, slot: usize) {
        let entry = self.ring.get(slot).and_then(Option::as_ref);
        if let Some(bytes) = entry.and_then(|entry| row::source_bytes(entry.row.as_ref()?)) {
            prefetch(&bytes[..bytes.len().min(PREFETCH_BYTES)]);
        }
    }

    /// The row under `key`, which is marked as used.
    pub(super) fn use_row(&mut self, hash: u64, key: &[u8]) -> Option<&Object> {
        let slot = self.slot(hash, key)?;
        let entry = self.ring[slot].as_mut()?;
        let row = entry.row.as_ref()?;
        entry.used = true;
        self.hits += 1;
        Some(row)
    }

    pub(super) fn entry(&mut self, slot: usize) -> Option<&mut CacheEntry> {
        self.ring[slot].as_mut()
    }

    /// Inserts an entry for a key that has none. Returns its slot.
    pub(super) fn insert(&mut self, hash: u64, key: &[u8], row: Option<Object>, bytes: usize) -> usize {
        if self.chains.len() < 2 * (self.rows + 1) {
            self.lengthen();
        }
        let changing = u32::from(row.is_none());
        let hash = hash as u32;
        let chain = self.chain(hash);
        let next = self.chains[chain];
        let entry = Some(CacheEntry { hash, key: Key::new(key), row, bytes, used: false, changing, next });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.ring[slot] = entry;
                slot
            }
            None => {
                self.ring.push(entry);
                self.ring.len() - 1
            }
        };
        self.chains[chain] = number(slot);
        self.rows += 1;
        self.bytes += bytes;
        slot
    }

    /// Doubles the number of chains.
    fn lengthen(&mut self) {
        self.chains = vec![END; (2 * self.chains.len()).max(CHAINS_MIN)];
        for slot in 0..self.ring.len() {
            let Some(hash) = self.ring[slot].as_ref().map(|entry| entry.hash) else { continue };
            let chain = self.chain(hash);
            let next = std::mem::replace(&mut self.chains[chain], number(slot));
            if let Some(entry) = &mut self.ring[slot] {
                entry.next = next;
            }
        }
    }

    /// Replaces the row of an entry, which may have none while it changes.
    pub(super) fn put(&mut self, slot: usize, row: Object, bytes: usize) {
        if let Some(entry) = &mut self.ring[slot] {
            self.bytes = self.bytes - entry.bytes + bytes;
            (entry.row, entry.bytes) = (Some(row), bytes);
        }
    }

    /// Evicts rows until the rest takes at most `bytes_max` bytes, or only rows that are being changed are left.
    pub(super) fn shrink_to(&mut self, bytes_max: usize) {
        // The first round may only clear the marks.
        let mut steps = 2 * self.ring.len();
        while self.bytes > bytes_max && steps > 0 {
            self.advance_hand();
            steps -= 1;
        }
    }

    /// Moves the hand by one slot: evicts the entry there, or clears its mark.
    fn advance_hand(&mut self) {
        self.hand = (self.hand + 1) % self.ring.len();
        match &mut self.ring[self.hand] {
            Some(entry) if entry.changing > 0 => {}
            Some(entry) if entry.used => entry.used = false,
            Some(_) => self.remove(self.hand),
            None => {}
        }
    }

    pub(super) fn remove(&mut self, slot: usize) {
        let Some(entry) = self.ring[slot].take() else { return };
        let chain = self.chain(entry.hash);
        self.unlink(chain, number(slot), entry.next);
        self.rows -= 1;
        self.bytes -= entry.bytes;
        self.free.push(slot);
    }

    /// Unlinks `slot` from its chain: its predecessor gets `next`.
    fn unlink(&mut self, chain: usize, slot: u32, next: u32) {
        if self.chains[chain] == slot {
            self.chains[chain] = next;
            return;
        }
        let mut before = self.chains[chain] as usize;
        while let Some(entry) = self.ring.get_mut(before).and_then(Option::as_mut) {
            if entry.next == slot {
                entry.next = next;
                return;
            }
            before = entry.next as usize;
        }
    }

    /// Whether every slot is either used or free.
    #[cfg(test)]
    pub(super) fn is_sound(&self) -> bool {
        let is_found = |slot: usize| {
            let entry = self.ring[slot].as_ref();
            entry.is_none_or(|entry| self.slot(u64::from(entry.hash), entry.key.as_bytes()) == Some(slot))
        };
        self.rows + self.free.len() == self.ring.len() && (0..self.ring.len()).all(is_found)
    }
}

fn number(slot: usize) -> u32 {
    u32::try_from(slot).expect("invariant: the places of a part are far fewer than 2^32")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_two_lines_of_memory() {
        assert_eq!(size_of::<Option<CacheEntry>>(), 128);
    }

    #[test]
    fn rows_are_found_however_many_have_come_and_gone() {
        let mut partition = Partition::default();
        // Few hashes, so that chains are long, with all of their bits set at times.
        let hash = |n: u64| (n % 700) << (n % 57);
        for n in 0..3_000_u64 {
            partition.insert(hash(n), &n.to_be_bytes(), None, 1);
            if n % 3 == 2 {
                let gone = n / 2;
                let slot = partition.slot(hash(gone), &gone.to_be_bytes()).expect("it is kept");
                partition.remove(slot);
                assert_eq!(partition.slot(hash(gone), &gone.to_be_bytes()), None, "{gone} of {n}");
                partition.insert(hash(gone), &gone.to_be_bytes(), None, 1);
            }
            if n % 500 == 499 {
                assert!(partition.is_sound(), "after {n}");
            }
        }
        for n in 0..3_000_u64 {
            let slot = partition.slot(hash(n), &n.to_be_bytes()).expect("it is kept");
            partition.remove(slot);
        }
        assert!(partition.is_sound() && partition.len() == 0);
    }

    #[test]
    fn keys_of_any_length_are_told_apart() {
        let mut partition = Partition::default();
        let key = |len: usize, last: u8| [vec![7; len], vec![last]].concat();
        // All keys have the same hash.
        for len in [0, 60, 61, 62, 63, 64, 300] {
            for last in [0, 1] {
                assert_eq!(partition.slot(5, &key(len, last)), None);
                partition.insert(5, &key(len, last), None, 1);
            }
        }
        for len in [0, 60, 61, 62, 63, 64, 300] {
            for last in [0, 1] {
                let slot = partition.slot(5, &key(len, last)).expect("it is kept");
                assert_eq!(partition.entry(slot).map(|entry| entry.key_len()), Some(len + 1));
                partition.remove(slot);
                assert_eq!(partition.slot(5, &key(len, last)), None);
            }
        }
        assert_eq!((partition.len(), partition.bytes), (0, 0));
    }
}
