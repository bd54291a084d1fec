//! The limits of [`Space::History`]: its oldest files are deleted once all files have too many bytes, and once they are too old.
//!
//! RocksDB has the limit of bytes (FIFO compaction). Its own limit of age would need every file of the database to stay open,
//! so files that are too old are deleted by lowering the limit of bytes for a moment.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rocksdb::{DB, FifoCompactOptions};

use super::column;
use crate::{EngineError, Space};

/// How long RocksDB may take to delete files.
const DELETE_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A file of the space: its number, and its size in bytes.
type File = (u64, u64);

/// The options of RocksDB for a space of `bytes_max` bytes.
pub(super) fn limits(bytes_max: u64) -> FifoCompactOptions {
    let mut limits = FifoCompactOptions::default();
    limits.set_max_table_files_size(bytes_max);
    limits
}

/// Deletes the files of the space that were completed more than `age` ago. Waits for RocksDB. `bytes_max` is the limit of bytes
/// that holds otherwise.
pub(super) fn delete_older(db: &DB, age: Duration, bytes_max: u64) -> Result<(), EngineError> {
    let files = files(db)?;
    let Some(oldest_to_keep) = SystemTime::now().checked_sub(age) else { return Ok(()) };
    let is_old = |(number, _): &&File| {
        completed_at(db.path(), *number).is_some_and(|completed| completed < oldest_to_keep)
    };
    let old: Vec<File> = files.iter().take_while(is_old).copied().collect();
    let Some((newest, newest_bytes)) = old.last().copied() else { return Ok(()) };
    let bytes = |files: &[File]| files.iter().map(|(_, bytes)| bytes).sum::<u64>();
    // Just too little for the newest of the old files. The rest is room for a file that is completed meanwhile.
    let rest = bytes(&files) - bytes(&old) + newest_bytes.saturating_sub(1);
    set_bytes_max(db, rest.min(bytes_max))?;
    let deleted = await_deletion(db, newest);
    set_bytes_max(db, bytes_max)?;
    deleted
}

fn set_bytes_max(db: &DB, bytes_max: u64) -> Result<(), EngineError> {
    let limit = format!("{{max_table_files_size={bytes_max};}}");
    Ok(db.set_options_cf(column(db, Space::History), &[("compaction_options_fifo", &limit)])?)
}

/// Waits until the files up to this number are deleted.
fn await_deletion(db: &DB, newest: u64) -> Result<(), EngineError> {
    let deadline = std::time::Instant::now() + DELETE_TIMEOUT;
    while files(db)?.iter().any(|(number, _)| *number <= newest) && std::time::Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// The files of the space, the oldest first.
fn files(db: &DB) -> Result<Vec<File>, EngineError> {
    let number = |name: &str| name.trim_start_matches('/').strip_suffix(".sst")?.parse().ok();
    let all = db.live_files()?.into_iter();
    let own = all.filter(|file| file.column_family_name == Space::History.name());
    let mut files: Vec<File> = own.filter_map(|file| Some((number(&file.name)?, file.size as u64))).collect();
    files.sort_unstable();
    Ok(files)
}

/// The time at which a file was completed, which is not before its newest change was made.
fn completed_at(dir: &Path, number: u64) -> Option<SystemTime> {
    std::fs::metadata(dir.join(format!("{number:06}.sst"))).and_then(|found| found.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rocks::{EngineOptions, RocksEngine};
    use crate::{Batch, Engine};

    const BYTES_MAX: u64 = 1 << 20;

    fn open(dir: &Path) -> RocksEngine {
        RocksEngine::open(dir, &EngineOptions { history_bytes_max: BYTES_MAX, ..EngineOptions::default() })
            .unwrap()
    }

    /// Writes a file of the history with one key, and a row.
    fn put(engine: &RocksEngine, key: &[u8]) {
        let mut batch = Batch::new();
        batch.put(Space::History, key, vec![key[0]; 300 << 10].into());
        batch.put(Space::Rows, key, vec![1].into());
        engine.write(batch).unwrap();
        engine.flush().unwrap();
    }

    fn has(engine: &RocksEngine, key: &[u8]) -> bool {
        assert!(engine.get(Space::Rows, key).unwrap().is_some(), "rows stay");
        engine.get(Space::History, key).unwrap().is_some()
    }

    /// Waits for a deletion in the background.
    fn await_deleted(engine: &RocksEngine, key: &[u8]) {
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while has(engine, key) {
            assert!(std::time::Instant::now() < deadline, "{key:?} is still there");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    #[test]
    fn the_oldest_files_are_deleted_once_they_are_too_many() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        for key in [b"1", b"2", b"3"] {
            put(&engine, key);
        }
        engine.delete_old_history(Duration::from_secs(3600)).unwrap();
        assert!(has(&engine, b"1") && has(&engine, b"2"), "within the limits");
        put(&engine, b"4");
        await_deleted(&engine, b"1");
        assert!(has(&engine, b"2") && has(&engine, b"4"));
    }

    #[test]
    fn files_are_deleted_once_they_are_too_old() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        put(&engine, b"1");
        put(&engine, b"2");
        let hour = Duration::from_secs(3600);
        for (number, _) in files(&engine.db).unwrap() {
            let file = std::fs::File::options()
                .write(true)
                .open(dir.path().join(format!("{number:06}.sst")))
                .unwrap();
            file.set_modified(SystemTime::now() - hour).unwrap();
        }
        put(&engine, b"3");
        engine.delete_old_history(2 * hour).unwrap();
        assert!(has(&engine, b"1"));
        engine.delete_old_history(hour / 2).unwrap();
        assert!(!has(&engine, b"1") && !has(&engine, b"2") && has(&engine, b"3"));
        // The limit of bytes is as before.
        put(&engine, b"4");
        put(&engine, b"5");
        assert!(has(&engine, b"3") && has(&engine, b"5"));
        put(&engine, b"6");
        await_deleted(&engine, b"3");
        // Also without any file left.
        engine.delete_old_history(Duration::ZERO).unwrap();
        engine.delete_old_history(Duration::ZERO).unwrap();
        put(&engine, b"7");
        assert!(!has(&engine, b"6") && has(&engine, b"7"));
    }
}
