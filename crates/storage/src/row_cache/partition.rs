//! One part of the cache: a ring of places, found by the hashes of their keys, and a clock that empties them.

use datum::{Object, row};
use engine::prefetch;

/// Of a row that will be read this much is fetched ahead: the processor sees by itself that the rest follows.
const PREFETCH_BYTES: usize = 2 << 10;

#[derive(Default)]
pub(super) struct Partition {
    // For each value of the lowest bits of a hash the first of its places, which names the next; a power of
    // two, at least twice as many as there are rows, so that a row is seldom behind another. A table that keeps
    // what it looks at first to itself cannot be told to fetch it.
    chains: Vec<u32>,
    rows: usize,
    // A clock: the hand goes round, and who was not used since it last came by goes.
    ring: Vec<Option<CacheEntry>>,
    free: Vec<usize>,
    hand: usize,
    pub(super) bytes: usize,
    // Counts beginnings and ends of changes.
    pub(super) epoch: u64,
    // Changes that have begun and not ended: the engine may show either row.
    pub(super) changing: usize,
    pub(super) hits: u64,
    pub(super) misses: u64,
}

/// The end of a chain.
const END: u32 = u32::MAX;
/// The first chains of a part.
const CHAINS_MIN: usize = 16;

/// Two lines of memory, so that a row's key and where its bytes are come together.
#[repr(align(64))]
pub(super) struct CacheEntry {
    // The lower half of its key's hash.
    hash: u32,
    key: Key,
    // None while it changes.
    pub(super) row: Option<Object>,
    bytes: usize,
    used: bool,
    // How many changes of it have begun and not ended; it stays in its place until they have.
    pub(super) changing: u32,
    // The next place of its chain.
    next: u32,
}

/// The engine's key of a row.
enum Key {
    Short { len: u8, bytes: [u8; Key::SHORT_BYTES] },
    Long(Box<[u8]>),
}

impl Key {
    /// Enough for the table and a UUID.
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
    /// Bytes of its key.
    pub(super) fn key_len(&self) -> usize {
        self.key.as_bytes().len()
    }
}

impl Partition {
    /// Rows that are kept, those that change now among them.
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// The place of the row under `key`.
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

    /// Where the places of rows with such a hash begin; no place if there is none.
    fn first_slot(&self, hash: u64) -> Option<usize> {
        self.chains.get(self.chain(hash as u32)).map(|slot| *slot as usize)
    }

    /// Which chain rows with such a hash are in.
    fn chain(&self, hash: u32) -> usize {
        hash as usize & self.chains.len().wrapping_sub(1)
    }

    /// Has what tells where a row of this hash is fetched.
    pub(super) fn prefetch_chain(&self, hash: u64) {
        if let Some(first) = self.chains.get(self.chain(hash as u32)) {
            prefetch(first);
        }
    }

    /// Has what is probably the place of the row under a key of this hash fetched.
    pub(super) fn prefetch_slot(&self, hash: u64) {
        if let Some(entry) = self.first_slot(hash).and_then(|slot| self.ring.get(slot)) {
            prefetch(entry);
        }
    }

    /// Has the beginning of the row at `slot` fetched, if one is there that is stored text.
    pub(super) fn prefetch_row(&self, slot: usize) {
        let entry = self.ring.get(slot).and_then(Option::as_ref);
        if let Some(bytes) = entry.and_then(|entry| row::held(entry.row.as_ref()?)) {
            prefetch(&bytes[..bytes.len().min(PREFETCH_BYTES)]);
        }
    }

    /// The row under `key`, which is used thereby.
    pub(super) fn use_row(&mut self, hash: u64, key: &[u8]) -> Option<&Object> {
        let slot = self.slot(hash, key)?;
        let entry = self.ring[slot].as_mut()?;
        let row = entry.row.as_ref()?;
        entry.used = true;
        self.hits += 1;
        Some(row)
    }

    /// What is at `slot`.
    pub(super) fn entry(&mut self, slot: usize) -> Option<&mut CacheEntry> {
        self.ring[slot].as_mut()
    }

    /// Puts a row where there is none of its key; where that is.
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

    /// Twice as many chains.
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

    /// Puts another row at `slot`, where one is or was until it changed.
    pub(super) fn put(&mut self, slot: usize, row: Object, bytes: usize) {
        if let Some(entry) = &mut self.ring[slot] {
            self.bytes = self.bytes - entry.bytes + bytes;
            (entry.row, entry.bytes) = (Some(row), bytes);
        }
    }

    /// Rows go until the others take `bytes_max` bytes at most, or only such are left as now change.
    pub(super) fn shrink_to(&mut self, bytes_max: usize) {
        // The first round may do no more than mark everybody.
        let mut steps = 2 * self.ring.len();
        while self.bytes > bytes_max && steps > 0 {
            self.advance_hand();
            steps -= 1;
        }
    }

    /// Moves the hand by one; what it passes goes, or gets another round.
    fn advance_hand(&mut self) {
        self.hand = (self.hand + 1) % self.ring.len();
        match &mut self.ring[self.hand] {
            Some(entry) if entry.changing > 0 => {}
            Some(entry) if entry.used => entry.used = false,
            Some(_) => self.remove(self.hand),
            None => {}
        }
    }

    /// The row at `slot` goes.
    pub(super) fn remove(&mut self, slot: usize) {
        let Some(entry) = self.ring[slot].take() else { return };
        let chain = self.chain(entry.hash);
        self.unlink(chain, number(slot), entry.next);
        self.rows -= 1;
        self.bytes -= entry.bytes;
        self.free.push(slot);
    }

    /// What names `slot` in its chain names `next` from now on.
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

    /// Whether every place is either taken or free.
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
        // Few hashes, so that chains are long, and all of their bits in turn.
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
        // All of one hash.
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
