//! Rows that were read lately, verified and ready: a hit costs no engine lookup, no copy and no
//! checksum.
//!
//! Never shows a row that the engine does not hold. A reader that misses may keep what it then
//! reads only if no change came close meanwhile; a change takes rows out before the engine has it
//! and bars readers again after ([`RowCache::begin_change`], [`RowCache::end_change`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use datum::Object;
use parking_lot::Mutex;

/// Separate caches, so that threads seldom meet and an epoch seldom changes for nothing.
const PARTS: usize = 128;
/// What a kept row costs beside its bytes: its places in the map and the ring, and allocations.
const ROW_OVERHEAD_BYTES: usize = 160;
/// A row larger than this share of a part would push out too many others.
const ROW_SHARE_MAX: usize = 8;

/// A cache of rows by their engine keys, bounded in bytes.
pub(crate) struct RowCache {
    parts: Vec<Mutex<Part>>,
    part_bytes_max: AtomicUsize,
}

/// What the row cache has done and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCacheStats {
    /// Reads it answered.
    pub hits: u64,
    /// Reads it left to the engine.
    pub misses: u64,
    /// Rows it holds.
    pub rows: u64,
    /// Bytes they take, keys and overhead included.
    pub bytes: u64,
}

/// What a lookup found.
pub(crate) enum Found {
    /// The row.
    Row(Object),
    /// Nothing; what the engine has may be kept with this.
    Nothing(Permit),
}

/// Leave to keep a row that is now read from the engine, void once a change comes close.
pub(crate) struct Permit {
    epoch: u64,
}

#[derive(Default)]
struct Part {
    places: HashMap<Box<[u8]>, usize>,
    // A clock: the hand goes round, and who was not used since it last came by goes.
    ring: Vec<Option<Kept>>,
    free: Vec<usize>,
    hand: usize,
    bytes: usize,
    // Counts beginnings and ends of changes.
    epoch: u64,
    // Changes that have begun and not ended: the engine may show either row.
    changing: usize,
    hits: u64,
    misses: u64,
}

struct Kept {
    key: Box<[u8]>,
    row: Object,
    bytes: usize,
    used: bool,
}

impl RowCache {
    /// A cache of about `bytes_max` bytes. One of zero keeps nothing.
    pub(crate) fn new(bytes_max: usize) -> RowCache {
        let parts = (0..PARTS).map(|_| Mutex::default()).collect();
        RowCache { parts, part_bytes_max: AtomicUsize::new(bytes_max / PARTS) }
    }

    /// From now on it is of about `bytes_max` bytes; rows go until it is.
    pub(crate) fn resize(&self, bytes_max: usize) {
        self.part_bytes_max.store(bytes_max / PARTS, Ordering::Relaxed);
        for part in &self.parts {
            part.lock().shrink_to(bytes_max / PARTS);
        }
    }

    /// Whether it keeps nothing, so that nothing need be looked for.
    pub(crate) fn is_off(&self) -> bool {
        self.part_bytes_max() == 0
    }

    /// The row under `key`, if it is here.
    pub(crate) fn find(&self, key: &[u8]) -> Found {
        let mut part = self.part(key).lock();
        let part = &mut *part;
        match part.places.get(key).and_then(|place| part.ring[*place].as_mut()) {
            Some(kept) => {
                kept.used = true;
                part.hits += 1;
                Found::Row(kept.row.clone())
            }
            None => {
                part.misses += 1;
                Found::Nothing(Permit { epoch: part.epoch })
            }
        }
    }

    /// Keeps `row`, which the engine held when `permit` was given or later.
    pub(crate) fn keep(&self, permit: &Permit, key: &[u8], row: &Object, row_bytes: usize) {
        let mut part = self.part(key).lock();
        if part.changing == 0 && part.epoch == permit.epoch {
            part.insert(key, row.clone(), row_bytes, self.part_bytes_max());
        }
    }

    /// The engine is about to change the row: whether it was here. It is not from now on, and nothing
    /// is kept beside it until [`RowCache::end_change`] is called once for this call.
    pub(crate) fn begin_change(&self, key: &[u8]) -> bool {
        let mut part = self.part(key).lock();
        part.epoch += 1;
        part.changing += 1;
        part.remove(key)
    }

    /// The engine has changed the row. `row` is the new one, if it is to be kept.
    pub(crate) fn end_change(&self, key: &[u8], row: Option<(Object, usize)>) {
        let mut part = self.part(key).lock();
        part.epoch += 1;
        part.changing -= 1;
        match row {
            Some((row, row_bytes)) => part.insert(key, row, row_bytes, self.part_bytes_max()),
            None => {
                part.remove(key);
            }
        }
    }

    pub(crate) fn stats(&self) -> RowCacheStats {
        let mut stats = RowCacheStats::default();
        for part in &self.parts {
            let part = part.lock();
            stats.hits += part.hits;
            stats.misses += part.misses;
            stats.rows += part.places.len() as u64;
            stats.bytes += part.bytes as u64;
        }
        stats
    }

    fn part_bytes_max(&self) -> usize {
        self.part_bytes_max.load(Ordering::Relaxed)
    }

    fn part(&self, key: &[u8]) -> &Mutex<Part> {
        &self.parts[part_of(key)]
    }
}

impl Part {
    fn insert(&mut self, key: &[u8], row: Object, row_bytes: usize, bytes_max: usize) {
        let bytes = key.len() + row_bytes + ROW_OVERHEAD_BYTES;
        self.remove(key);
        if bytes > bytes_max / ROW_SHARE_MAX {
            return;
        }
        self.shrink_to(bytes_max.saturating_sub(bytes));
        let key: Box<[u8]> = key.into();
        let kept = Some(Kept { key: key.clone(), row, bytes, used: false });
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
        self.places.insert(key, place);
        self.bytes += bytes;
    }

    /// Rows go until the others take `bytes_max` bytes at most.
    fn shrink_to(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max && !self.places.is_empty() {
            self.turn();
        }
    }

    /// Moves the hand by one; what it passes goes, or gets another round.
    fn turn(&mut self) {
        self.hand = (self.hand + 1) % self.ring.len();
        match &mut self.ring[self.hand] {
            Some(kept) if kept.used => kept.used = false,
            Some(kept) => {
                let key = std::mem::take(&mut kept.key);
                self.places.remove(&key);
                self.vacate(self.hand);
            }
            None => {}
        }
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let place = self.places.remove(key);
        if let Some(place) = place {
            self.vacate(place);
        }
        place.is_some()
    }

    fn vacate(&mut self, place: usize) {
        if let Some(kept) = self.ring[place].take() {
            self.bytes -= kept.bytes;
            self.free.push(place);
        }
    }
}

fn part_of(key: &[u8]) -> usize {
    let mut hash = 0_u64;
    for chunk in key.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(bytes)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    (hash >> 32) as usize % PARTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use datum::{Datum, Text};

    fn row(n: f64) -> Object {
        [(Text::from("n"), Datum::Number(n))].into_iter().collect()
    }

    fn found(cache: &RowCache, key: &[u8]) -> Option<Object> {
        match cache.find(key) {
            Found::Row(row) => Some(row),
            Found::Nothing(_) => None,
        }
    }

    fn permit(cache: &RowCache, key: &[u8]) -> Permit {
        match cache.find(key) {
            Found::Row(_) => panic!("the row is there already"),
            Found::Nothing(permit) => permit,
        }
    }

    #[test]
    fn a_row_is_kept_until_it_changes() {
        let cache = RowCache::new(1 << 20);
        cache.keep(&permit(&cache, b"k"), b"k", &row(1.0), 20);
        assert_eq!(found(&cache, b"k"), Some(row(1.0)));
        assert!(cache.begin_change(b"k"));
        assert_eq!(found(&cache, b"k"), None);
        cache.end_change(b"k", Some((row(2.0), 20)));
        assert_eq!(found(&cache, b"k"), Some(row(2.0)));
        assert!(!cache.begin_change(b"other"));
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept_after() {
        let cache = RowCache::new(1 << 20);
        let before = permit(&cache, b"k");
        cache.begin_change(b"k");
        let during = permit(&cache, b"k");
        cache.keep(&before, b"k", &row(1.0), 20);
        // The old row, read while others may read the new one already.
        cache.keep(&during, b"k", &row(1.0), 20);
        assert_eq!(found(&cache, b"k"), None);
        cache.end_change(b"k", None);
        cache.keep(&during, b"k", &row(1.0), 20);
        assert_eq!(found(&cache, b"k"), None);
        cache.keep(&permit(&cache, b"k"), b"k", &row(2.0), 20);
        assert_eq!(found(&cache, b"k"), Some(row(2.0)));
    }

    #[test]
    fn used_rows_stay_and_the_bound_holds() {
        let cache = RowCache::new(4 << 20);
        let name = |n: u32| n.to_be_bytes();
        for n in 0..50_000_u32 {
            cache.keep(&permit(&cache, &name(n)), &name(n), &row(0.0), 1000);
            // A few rows are asked for all the time.
            for hot in 0..n.min(5) {
                found(&cache, &name(hot));
            }
        }
        let stats = cache.stats();
        assert!(stats.bytes <= 4 << 20 && stats.bytes > 3 << 20, "{stats:?}");
        assert!((2000..4200).contains(&stats.rows), "{stats:?}");
        for hot in 0..5 {
            assert!(found(&cache, &name(hot)).is_some(), "row {hot} was used and went");
        }
        for part in &cache.parts {
            let part = part.lock();
            assert_eq!(part.places.len() + part.free.len(), part.ring.len());
        }
    }

    #[test]
    fn a_huge_row_is_not_kept() {
        let cache = RowCache::new(1 << 20);
        cache.keep(&permit(&cache, b"k"), b"k", &row(1.0), 1 << 20);
        assert_eq!(found(&cache, b"k"), None);
    }

    #[test]
    fn a_cache_grows_and_shrinks() {
        let cache = RowCache::new(0);
        let fill = || {
            for n in 0..10_000_u32 {
                if let Found::Nothing(permit) = cache.find(&n.to_be_bytes()) {
                    cache.keep(&permit, &n.to_be_bytes(), &row(0.0), 1000);
                }
            }
            cache.stats().bytes
        };
        assert!(cache.is_off());
        assert_eq!(fill(), 0);
        cache.resize(8 << 20);
        assert!(fill() > 7 << 20);
        cache.resize(4 << 20);
        let left = cache.stats();
        assert!(left.bytes <= 4 << 20 && left.bytes > 3 << 20, "{left:?}");
        cache.resize(0);
        assert_eq!((cache.stats().bytes, cache.stats().rows), (0, 0));
        assert_eq!(fill(), 0);
    }
}
