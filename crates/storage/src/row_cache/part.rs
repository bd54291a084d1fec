//! One part of the cache: a ring of places, found by the hashes of their keys, and a clock that empties them.

use datum::{Object, row};
use engine::fetch_ahead;

/// Of a row that will be read this much is fetched ahead: the processor sees by itself that the rest follows.
const FETCHED_BYTES: usize = 2 << 10;

#[derive(Default)]
pub(super) struct Part {
    // For each value of the lowest bits of a hash the first of its places, which names the next; a power of
    // two, at least twice as many as there are rows, so that a row is seldom behind another. A table that keeps
    // what it looks at first to itself cannot be told to fetch it.
    chains: Vec<u32>,
    rows: usize,
    // A clock: the hand goes round, and who was not used since it last came by goes.
    ring: Vec<Option<Kept>>,
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
pub(super) struct Kept {
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

impl Kept {
    /// Bytes of its key.
    pub(super) fn key_len(&self) -> usize {
        self.key.as_bytes().len()
    }
}

impl Part {
    /// Rows that are kept, those that change now among them.
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// The place of the row under `key`.
    pub(super) fn place(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let mut place = self.first_place(hash)?;
        loop {
            let kept = self.ring.get(place)?.as_ref()?;
            if kept.hash == hash as u32 && kept.key.as_bytes() == key {
                return Some(place);
            }
            place = kept.next as usize;
        }
    }

    /// Where the places of rows with such a hash begin; no place if there is none.
    fn first_place(&self, hash: u64) -> Option<usize> {
        self.chains.get(self.chain(hash as u32)).map(|place| *place as usize)
    }

    /// Which chain rows with such a hash are in.
    fn chain(&self, hash: u32) -> usize {
        hash as usize & self.chains.len().wrapping_sub(1)
    }

    /// Has what tells where a row of this hash is fetched.
    pub(super) fn fetch_chain(&self, hash: u64) {
        if let Some(first) = self.chains.get(self.chain(hash as u32)) {
            fetch_ahead(first);
        }
    }

    /// Has what is probably the place of the row under a key of this hash fetched.
    pub(super) fn fetch_place(&self, hash: u64) {
        if let Some(kept) = self.first_place(hash).and_then(|place| self.ring.get(place)) {
            fetch_ahead(kept);
        }
    }

    /// Has the beginning of the row at `place` fetched, if one is there that is stored text.
    pub(super) fn fetch_row(&self, place: usize) {
        let kept = self.ring.get(place).and_then(Option::as_ref);
        if let Some(bytes) = kept.and_then(|kept| row::held(kept.row.as_ref()?)) {
            fetch_ahead(&bytes[..bytes.len().min(FETCHED_BYTES)]);
        }
    }

    /// The row under `key`, which is used thereby.
    pub(super) fn use_row(&mut self, hash: u64, key: &[u8]) -> Option<&Object> {
        let place = self.place(hash, key)?;
        let kept = self.ring[place].as_mut()?;
        let row = kept.row.as_ref()?;
        kept.used = true;
        self.hits += 1;
        Some(row)
    }

    /// What is at `place`.
    pub(super) fn kept(&mut self, place: usize) -> Option<&mut Kept> {
        self.ring[place].as_mut()
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
        let kept = Some(Kept { hash, key: Key::new(key), row, bytes, used: false, changing, next });
        let place = match self.free.pop() {
            Some(place) => {
                self.ring[place] = kept;
                place
            }
            None => {
                self.ring.push(kept);
                self.ring.len() - 1
            }
        };
        self.chains[chain] = number(place);
        self.rows += 1;
        self.bytes += bytes;
        place
    }

    /// Twice as many chains.
    fn lengthen(&mut self) {
        self.chains = vec![END; (2 * self.chains.len()).max(CHAINS_MIN)];
        for place in 0..self.ring.len() {
            let Some(hash) = self.ring[place].as_ref().map(|kept| kept.hash) else { continue };
            let chain = self.chain(hash);
            let next = std::mem::replace(&mut self.chains[chain], number(place));
            if let Some(kept) = &mut self.ring[place] {
                kept.next = next;
            }
        }
    }

    /// Puts another row at `place`, where one is or was until it changed.
    pub(super) fn put(&mut self, place: usize, row: Object, bytes: usize) {
        if let Some(kept) = &mut self.ring[place] {
            self.bytes = self.bytes - kept.bytes + bytes;
            (kept.row, kept.bytes) = (Some(row), bytes);
        }
    }

    /// Rows go until the others take `bytes_max` bytes at most, or only such are left as now change.
    pub(super) fn shrink_to(&mut self, bytes_max: usize) {
        // The first round may do no more than mark everybody.
        let mut turns = 2 * self.ring.len();
        while self.bytes > bytes_max && turns > 0 {
            self.turn();
            turns -= 1;
        }
    }

    /// Moves the hand by one; what it passes goes, or gets another round.
    fn turn(&mut self) {
        self.hand = (self.hand + 1) % self.ring.len();
        match &mut self.ring[self.hand] {
            Some(kept) if kept.changing > 0 => {}
            Some(kept) if kept.used => kept.used = false,
            Some(_) => self.remove(self.hand),
            None => {}
        }
    }

    /// The row at `place` goes.
    pub(super) fn remove(&mut self, place: usize) {
        let Some(kept) = self.ring[place].take() else { return };
        let chain = self.chain(kept.hash);
        self.take_out(chain, number(place), kept.next);
        self.rows -= 1;
        self.bytes -= kept.bytes;
        self.free.push(place);
    }

    /// What names `place` in its chain names `next` from now on.
    fn take_out(&mut self, chain: usize, place: u32, next: u32) {
        if self.chains[chain] == place {
            self.chains[chain] = next;
            return;
        }
        let mut before = self.chains[chain] as usize;
        while let Some(kept) = self.ring.get_mut(before).and_then(Option::as_mut) {
            if kept.next == place {
                kept.next = next;
                return;
            }
            before = kept.next as usize;
        }
    }

    /// Whether every place is either taken or free.
    #[cfg(test)]
    pub(super) fn is_sound(&self) -> bool {
        let is_found = |place: usize| {
            let kept = self.ring[place].as_ref();
            kept.is_none_or(|kept| self.place(u64::from(kept.hash), kept.key.as_bytes()) == Some(place))
        };
        self.rows + self.free.len() == self.ring.len() && (0..self.ring.len()).all(is_found)
    }
}

fn number(place: usize) -> u32 {
    u32::try_from(place).expect("invariant: the places of a part are far fewer than 2^32")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_two_lines_of_memory() {
        assert_eq!(size_of::<Option<Kept>>(), 128);
    }

    #[test]
    fn rows_are_found_however_many_have_come_and_gone() {
        let mut part = Part::default();
        // Few hashes, so that chains are long, and all of their bits in turn.
        let hash = |n: u64| (n % 700) << (n % 57);
        for n in 0..3_000_u64 {
            part.insert(hash(n), &n.to_be_bytes(), None, 1);
            if n % 3 == 2 {
                let gone = n / 2;
                let place = part.place(hash(gone), &gone.to_be_bytes()).expect("it is kept");
                part.remove(place);
                assert_eq!(part.place(hash(gone), &gone.to_be_bytes()), None, "{gone} of {n}");
                part.insert(hash(gone), &gone.to_be_bytes(), None, 1);
            }
            if n % 500 == 499 {
                assert!(part.is_sound(), "after {n}");
            }
        }
        for n in 0..3_000_u64 {
            let place = part.place(hash(n), &n.to_be_bytes()).expect("it is kept");
            part.remove(place);
        }
        assert!(part.is_sound() && part.len() == 0);
    }

    #[test]
    fn keys_of_any_length_are_told_apart() {
        let mut part = Part::default();
        let key = |len: usize, last: u8| [vec![7; len], vec![last]].concat();
        // All of one hash.
        for len in [0, 60, 61, 62, 63, 64, 300] {
            for last in [0, 1] {
                assert_eq!(part.place(5, &key(len, last)), None);
                part.insert(5, &key(len, last), None, 1);
            }
        }
        for len in [0, 60, 61, 62, 63, 64, 300] {
            for last in [0, 1] {
                let place = part.place(5, &key(len, last)).expect("it is kept");
                assert_eq!(part.kept(place).map(|kept| kept.key_len()), Some(len + 1));
                part.remove(place);
                assert_eq!(part.place(5, &key(len, last)), None);
            }
        }
        assert_eq!((part.len(), part.bytes), (0, 0));
    }
}
