//! Dictionaries that are prepared for use, bounded in bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use foldhash::HashMap;
use parking_lot::RwLock;

use super::dictionary::DictionaryNumber;
use crate::TableId;

type Key = (TableId, DictionaryNumber);

/// Prepared dictionaries by table and number. When they take too much memory, the one that was used least recently is
/// dropped; it is prepared again when it is needed.
pub(super) struct PreparedDictionaries<T> {
    entries: RwLock<HashMap<Key, Entry<T>>>,
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
    // The number of uses so far.
    uses: AtomicU64,
}

struct Entry<T> {
    dictionary: Arc<T>,
    bytes: usize,
    used: AtomicU64,
}

impl<T> PreparedDictionaries<T> {
    pub(super) fn new(bytes_max: usize) -> PreparedDictionaries<T> {
        PreparedDictionaries {
            entries: RwLock::default(),
            bytes: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(bytes_max),
            uses: AtomicU64::new(0),
        }
    }

    pub(super) fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Relaxed);
        let mut entries = self.entries.write();
        self.shrink(&mut entries, None);
    }

    /// Bytes of all prepared dictionaries.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    pub(super) fn find(&self, key: Key) -> Option<Arc<T>> {
        let entries = self.entries.read();
        let entry = entries.get(&key)?;
        entry.used.store(self.uses.fetch_add(1, Relaxed), Relaxed);
        Some(Arc::clone(&entry.dictionary))
    }

    /// Keeps `dictionary`, which takes `bytes` bytes, until the memory is needed for others.
    pub(super) fn keep(&self, key: Key, dictionary: T, bytes: usize) -> Arc<T> {
        let dictionary = Arc::new(dictionary);
        let used = AtomicU64::new(self.uses.fetch_add(1, Relaxed));
        let entry = Entry { dictionary: Arc::clone(&dictionary), bytes, used };
        let mut entries = self.entries.write();
        self.bytes.fetch_add(bytes, Relaxed);
        if let Some(earlier) = entries.insert(key, entry) {
            self.bytes.fetch_sub(earlier.bytes, Relaxed);
        }
        self.shrink(&mut entries, Some(key));
        dictionary
    }

    /// Drops the dictionaries of a table.
    pub(super) fn forget(&self, table: TableId) {
        self.entries.write().retain(|(owner, _), entry| {
            let stays = *owner != table;
            if !stays {
                self.bytes.fetch_sub(entry.bytes, Relaxed);
            }
            stays
        });
    }

    /// Drops dictionaries, but not `kept`, until the rest fits.
    fn shrink(&self, entries: &mut HashMap<Key, Entry<T>>, kept: Option<Key>) {
        while self.bytes() > self.bytes_max.load(Relaxed) {
            let others = entries.iter().filter(|(key, _)| Some(**key) != kept);
            let oldest = others.min_by_key(|(_, entry)| entry.used.load(Relaxed)).map(|(key, _)| *key);
            let Some(removed) = oldest.and_then(|key| entries.remove(&key)) else { return };
            self.bytes.fetch_sub(removed.bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let key =
            |table, number| (TableId::from_uuid(uuid::Uuid::from_u128(table)), DictionaryNumber(number));
        let prepared = PreparedDictionaries::new(100);
        for number in 0..3 {
            prepared.keep(key(1, number), number, 30);
        }
        assert_eq!(prepared.find(key(1, 0)).as_deref(), Some(&0));
        prepared.keep(key(2, 0), 7, 30);
        assert_eq!(prepared.find(key(1, 1)), None);
        assert!(prepared.find(key(1, 0)).is_some() && prepared.bytes() == 90);
        prepared.keep(key(2, 0), 8, 40);
        assert_eq!((prepared.find(key(2, 0)).as_deref(), prepared.bytes()), (Some(&8), 100));
        prepared.forget(key(1, 0).0);
        assert_eq!((prepared.find(key(1, 0)), prepared.bytes()), (None, 40));
        prepared.keep(key(3, 0), 9, 1000);
        assert!(prepared.find(key(3, 0)).is_some() && prepared.find(key(2, 0)).is_none());
        prepared.set_bytes_max(10);
        assert_eq!(prepared.bytes(), 0);
    }
}
