//! One part of the cache: a ring of places, found by the hashes of their keys, and a clock that empties them.

use datum::{Object, row};
use engine::fetch_ahead;
use hashbrown::HashTable;

/// Of a row that will be read this much is fetched ahead: the processor sees by itself that the rest follows.
const FETCHED_BYTES: usize = 2 << 10;

#[derive(Default)]
pub(super) struct Part {
    // Places in the ring, by the hashes of their keys.
    places: HashTable<Place>,
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

/// Where a row is. Places are many times smaller than what is there, and found in faster memory.
struct Place {
    index: u32,
    // So much of the hash that hardly any other row is looked at in vain.
    tag: u32,
}

/// Two lines of memory, so that a row's key and where its bytes are come together.
#[repr(align(64))]
pub(super) struct Kept {
    hash: u64,
    key: Key,
    // None while it changes.
    pub(super) row: Option<Object>,
    bytes: usize,
    used: bool,
    // How many changes of it have begun and not ended; it stays in its place until they have.
    pub(super) changing: u32,
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
        self.places.len()
    }

    /// The place of the row under `key`.
    pub(super) fn place(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let is_it = |kept: &Kept| kept.hash == hash && kept.key.as_bytes() == key;
        let found = self.places.find(hash, |place| {
            place.tag == tag_of(hash) && self.ring[place.index as usize].as_ref().is_some_and(is_it)
        });
        found.map(|place| place.index as usize)
    }

    /// Has what is probably the place of the row under a key of this hash fetched; where that is.
    pub(super) fn fetch_place(&self, hash: u64) -> Option<usize> {
        let found = self.places.find(hash, |place| place.tag == tag_of(hash))?;
        let place = found.index as usize;
        fetch_ahead(&self.ring[place]);
        Some(place)
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
        let changing = u32::from(row.is_none());
        let kept = Some(Kept { hash, key: Key::new(key), row, bytes, used: false, changing });
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
        let index = u32::try_from(place).expect("invariant: the places of a part are far fewer than 2^32");
        let ring = &self.ring;
        let hash_of = |place: &Place| ring[place.index as usize].as_ref().map_or(0, |kept| kept.hash);
        self.places.insert_unique(hash, Place { index, tag: tag_of(hash) }, hash_of);
        self.bytes += bytes;
        place
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
        if let Ok(found) = self.places.find_entry(kept.hash, |other| other.index as usize == place) {
            found.remove();
        }
        self.bytes -= kept.bytes;
        self.free.push(place);
    }

    /// Whether every place is either taken or free.
    #[cfg(test)]
    pub(super) fn is_sound(&self) -> bool {
        self.places.len() + self.free.len() == self.ring.len()
    }
}

/// Bits of the hash that neither the table nor the choice of a part look at first.
fn tag_of(hash: u64) -> u32 {
    (hash >> 20) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_two_lines_of_memory() {
        assert_eq!(size_of::<Option<Kept>>(), 128);
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
