//! Damage that RocksDB meets while the engine is in use.
//!
//! A block that does not match its checksum fails the reads that need it, and no others. A merge of files that meets one would
//! make RocksDB refuse all writes; the listener in [`super::flushes`] prevents that. The files stay as they are then, and
//! RocksDB would try the same merge every second. So merging of that space pauses.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocksdb::DB;

use super::{column, discard};
use crate::{DamagedFile, DamagedFiles, EngineError, Space};

/// How long merging of a space pauses after it has met damage.
const MERGE_PAUSE: Duration = Duration::from_secs(600);

/// In place of a file's name: RocksDB does not name a file of large values in each of its messages.
const UNKNOWN: &str = "an unknown file";

/// The damage of one engine.
#[derive(Default)]
pub(super) struct Damage {
    files: Arc<DamagedFiles>,
    db: OnceLock<Weak<DB>>,
    /// Whether a merge has met damage since the last call of [`Damage::pause_merges`].
    merge_failed: AtomicBool,
    paused_since: Mutex<Option<Instant>>,
}

impl Damage {
    /// Sets the database, once it is open.
    pub(super) fn watch(&self, db: &Arc<DB>) {
        let _only_once = self.db.set(Arc::downgrade(db));
    }

    pub(super) fn files(&self) -> &Arc<DamagedFiles> {
        &self.files
    }

    /// Converts the error of a read of `keys`, and lists the file that it names.
    pub(super) fn failed(&self, error: rocksdb::Error, space: Space, keys: (&[u8], &[u8])) -> EngineError {
        let error = EngineError::from(error);
        match &error {
            EngineError::Corrupt { detail } => self.note(detail, space, keys),
            EngineError::Io { detail } if file_in(detail).is_some() => self.note(detail, space, keys),
            _ => {}
        }
        error
    }

    /// A merge of files has met damage.
    pub(super) fn merge_failed(&self, detail: &str) {
        tracing::error!("the storage engine cannot merge a damaged file, and goes on without: {detail}");
        self.merge_failed.store(true, Ordering::Relaxed);
        let name = name_in(detail);
        if self.files.count(name) {
            // The keys are found later: this is a thread of RocksDB, which must never be the one that closes the database.
            let (name, detail) = (name.to_owned(), detail.to_owned());
            self.files.add(DamagedFile { name, detail, space: None, keys: None, is_discarded: false });
        }
    }

    /// Notes the failed read of a thread that has the database open.
    fn note(&self, detail: &str, space: Space, keys: (&[u8], &[u8])) {
        let name = name_in(detail);
        if self.files.count(name) {
            tracing::error!("a file of the storage engine is damaged: {detail}");
            let found =
                self.db.get().and_then(Weak::upgrade).and_then(|db| file_of(&db, name).ok().flatten());
            let keys = (keys.0.to_vec(), keys.1.to_vec());
            let (space, keys) = found.map_or((Some(space), Some(keys)), |found| (found.space, found.keys));
            let (name, detail) = (name.to_owned(), detail.to_owned());
            self.files.add(DamagedFile { name, detail, space, keys, is_discarded: false });
        } else if may_have_large_values(name) {
            self.files.update(name, |file| widen(file, space, keys));
        }
    }

    /// Forgets files that no longer exist.
    pub(super) fn refresh(&self, db: &DB) -> Result<(), EngineError> {
        let live = db.live_files()?;
        let dir = db.path();
        self.files.retain(|name| {
            let is_listed = live.iter().any(|file| file.name.trim_start_matches('/') == name);
            is_listed || name == UNKNOWN || (name.ends_with(".blob") && dir.join(name).exists())
        });
        self.find_keys(db)
    }

    /// Finds the keys of files that merges have met, which run on threads of RocksDB.
    pub(super) fn find_keys(&self, db: &DB) -> Result<(), EngineError> {
        let unknown = self.files.list().into_iter().filter(|file| file.keys.is_none());
        for file in unknown.filter(|file| file.name.ends_with(".sst")) {
            if let Some(found) = file_of(db, &file.name)? {
                self.files.update(&file.name, |file| (file.space, file.keys) = (found.space, found.keys));
            }
        }
        Ok(())
    }

    /// Forgets the damage of a file that no message named.
    pub(super) fn forget_unknown(&self) {
        self.files.retain(|name| name != UNKNOWN);
    }

    /// Deletes a file of which nothing is needed any more, while nothing is merged. False if it is not possible while the
    /// database is open.
    pub(super) fn delete_file(&self, db: &DB, name: &str) -> Result<bool, EngineError> {
        let paused_since = self.paused_since.lock();
        set_merging(db, false)?;
        let deleted = discard::delete_alone(db, name);
        if paused_since.is_none() {
            set_merging(db, true)?;
        }
        drop(paused_since);
        deleted
    }

    /// Pauses merging if it has met damage, continues it after a while, and forgets files that no longer exist. To be called about
    /// once a minute.
    pub(super) fn pause_merges(&self, db: &DB) -> Result<(), EngineError> {
        self.refresh(db)?;
        let mut paused_since = self.paused_since.lock();
        if self.merge_failed.swap(false, Ordering::Relaxed) && paused_since.is_none() {
            set_merging(db, false)?;
            *paused_since = Some(Instant::now());
        } else if paused_since
            .is_some_and(|since| since.elapsed() >= MERGE_PAUSE || self.files.list().is_empty())
        {
            set_merging(db, true)?;
            *paused_since = None;
        }
        Ok(())
    }
}

/// The properties of a data file in the database.
struct FoundFile {
    space: Option<Space>,
    keys: Option<(Vec<u8>, Vec<u8>)>,
}

fn file_of(db: &DB, name: &str) -> Result<Option<FoundFile>, EngineError> {
    let mut files = db.live_files()?.into_iter();
    let found = files.find(|file| file.name.trim_start_matches('/') == name);
    Ok(found.map(|file| {
        let space = Space::ALL.into_iter().find(|space| space.name() == file.column_family_name);
        FoundFile { space, keys: file.start_key.zip(file.end_key) }
    }))
}

/// Whether RocksDB may have meant a file of large values.
pub(super) fn may_have_large_values(name: &str) -> bool {
    name.ends_with(".blob") || name == UNKNOWN
}

/// Adds the keys of a failed read to a file of large values.
fn widen(file: &mut DamagedFile, space: Space, keys: (&[u8], &[u8])) {
    file.space = Some(space);
    match &mut file.keys {
        Some((first, last)) => {
            if keys.0 < first.as_slice() {
                *first = keys.0.to_vec();
            }
            if keys.1 > last.as_slice() {
                *last = keys.1.to_vec();
            }
        }
        none => *none = Some((keys.0.to_vec(), keys.1.to_vec())),
    }
}

fn set_merging(db: &DB, is_on: bool) -> Result<(), EngineError> {
    let value = if is_on { "false" } else { "true" };
    for space in [Space::Rows, Space::Index, Space::Meta] {
        db.set_options_cf(column(db, space), &[("disable_auto_compactions", value)])?;
    }
    Ok(())
}

fn name_in(detail: &str) -> &str {
    file_in(detail).unwrap_or(UNKNOWN)
}

/// The name of the data file in one of RocksDB's messages.
fn file_in(detail: &str) -> Option<&str> {
    let end = [".sst", ".blob"].into_iter().find_map(|end| Some(detail.find(end)? + end.len()))?;
    let start = detail[..end].rfind(['/', ' ']).map_or(0, |at| at + 1);
    let name = &detail[start..end];
    Path::new(name).file_name().is_some().then_some(name)
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom, Write};

    use super::*;
    use crate::rocks::{EngineOptions, RocksEngine};
    use crate::{Batch, Engine};

    fn put(engine: &RocksEngine, rows: std::ops::Range<u32>, round: u8) {
        let mut batch = Batch::new();
        for row in rows {
            let value: Vec<u8> = (0..1000_u32).map(|at| (at * (row + 7) % 251) as u8 ^ round).collect();
            batch.put(Space::Rows, format!("key {row:05}").as_bytes(), value.into());
        }
        engine.write(batch).unwrap();
        engine.flush().unwrap();
    }

    #[test]
    fn a_damaged_block_stops_neither_other_reads_nor_writes() {
        let dir = tempfile::tempdir().unwrap();
        let options =
            EngineOptions { cache_bytes: 1 << 20, write_buffer_bytes: 16 << 20, ..EngineOptions::default() };
        let engine = RocksEngine::open(dir.path(), &options).unwrap();
        put(&engine, 0..2000, 1);
        let files = engine.files().unwrap();
        let file = files.iter().find(|file| file.space == Some(Space::Rows)).unwrap().clone();
        drop(engine);
        let mut damaged = std::fs::OpenOptions::new().write(true).open(dir.path().join(&file.name)).unwrap();
        damaged.seek(SeekFrom::Start(file.bytes / 2)).unwrap();
        damaged.write_all(&[0xEE; 64]).unwrap();
        drop(damaged);

        let engine = RocksEngine::open(dir.path(), &options).unwrap();
        let listed = engine.damaged_files();
        // Merges of the four files begin by themselves, and meet the damage.
        for round in 2..9 {
            put(&engine, 0..2000, round);
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while listed.list().is_empty() {
            assert!(Instant::now() < deadline, "no merge has met the damage");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(listed.list()[0].name, file.name);
        engine.pause_failed_merges().unwrap();
        assert_eq!(listed.list()[0].keys, Some((b"key 00000".to_vec(), b"key 01999".to_vec())));
        // Writes and flushes go on, and rows of other blocks are read.
        put(&engine, 5000..5100, 9);
        assert!(engine.get(Space::Rows, b"key 05050").unwrap().is_some());
        assert!(engine.get(Space::Rows, b"key 00001").unwrap().is_some());
        put(&engine, 6000..6100, 9);
        assert_eq!(listed.list().len(), 1, "the file is still in use");
    }

    #[test]
    fn the_file_is_found_in_messages() {
        let message =
            "block checksum mismatch: stored = 1, computed = 2, type = 4  in /d/e/000012.sst offset 0 size 9";
        assert_eq!(file_in(message), Some("000012.sst"));
        assert_eq!(file_in("Corruption: 000007.blob: bad"), Some("000007.blob"));
        assert_eq!(file_in("No space left on device"), None);
    }
}
