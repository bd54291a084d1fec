//! Reads for checks: the files of an engine that no server has open, without changing them, and all pairs of one that is in use.

use std::ffi::c_char;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use librocksdb_sys as ffi;
use rocksdb::{AsRawPtr, ColumnFamilyDescriptor, DB, Options, ReadOptions};

use super::options::{self, EngineOptions, Tolerance};
use super::split_points::take_error;
use super::view::{self, Tier};
use super::{RocksEngine, file_list, open_error};
use crate::{Direction, EngineError, Scan, ScanRange, Space};

/// A file of an engine that holds pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineFile {
    /// Its name in the engine's directory.
    pub name: String,
    /// The space of its pairs; `None` if this program does not know it.
    pub space: Option<Space>,
    pub bytes: u64,
    /// The lowest key.
    pub first: Vec<u8>,
    /// The highest key.
    pub last: Vec<u8>,
}

/// The spaces that the engine in `dir` lacks. An engine of an early version lacks some until it is opened for writing.
///
/// Fails if the list of its files is damaged.
pub fn missing_spaces(dir: &Path) -> Result<Vec<Space>, EngineError> {
    file_list::verify(dir)?;
    let found = DB::list_cf(&Options::default(), dir)?;
    let is_missing = |space: &Space| found.iter().all(|name| name != space.name());
    Ok(Space::ALL.into_iter().filter(is_missing).collect())
}

impl RocksEngine {
    /// Opens the engine in `dir` for reading. Creates and changes no file, and takes no lock: the caller makes sure that
    /// no other process writes there. Writes fail.
    ///
    /// Fails with [`EngineError::Corrupt`] if the list of its files is damaged.
    pub fn open_read_only(
        dir: &Path,
        options: &EngineOptions,
        tolerance: Tolerance,
    ) -> Result<RocksEngine, EngineError> {
        file_list::verify(dir)?;
        let cache = options::block_cache(options);
        let spaces = Space::ALL.map(|space| {
            ColumnFamilyDescriptor::new(space.name(), options::for_space(space, options, &cache))
        });
        let database = options::for_reading(options, tolerance);
        let db = DB::open_cf_descriptors_read_only(&database, dir, spaces, false);
        let db = Arc::new(db.map_err(|error| open_error(dir, error))?);
        Ok(RocksEngine::without_threads(db, cache, options.history_bytes_max))
    }

    /// Makes a new list of the files in `dir` from the files themselves, and opens the engine. Files that cannot be read
    /// whole are moved into the folder `lost`; separately stored large values are not listed. Nothing is merged
    /// afterwards.
    ///
    /// `dir` is changed, so it must be a copy; its data files may be links, since they are never written to.
    pub fn open_repaired(dir: &Path, options: &EngineOptions) -> Result<RocksEngine, EngineError> {
        let cache = options::block_cache(options);
        let mut database = options::for_database(options);
        // Applies to every space: the function takes no options for single ones.
        let mut repair = options::for_space(Space::Rows, options, &cache);
        repair.create_if_missing(true);
        DB::repair(&repair, dir)?;
        database.set_paranoid_checks(false);
        let spaces = Space::ALL.map(|space| {
            let mut column = options::for_space(space, options, &cache);
            column.set_disable_auto_compactions(true);
            ColumnFamilyDescriptor::new(space.name(), column)
        });
        let db = DB::open_cf_descriptors(&database, dir, spaces).map_err(|error| open_error(dir, error))?;
        Ok(RocksEngine::without_threads(Arc::new(db), cache, options.history_bytes_max))
    }

    /// Verifies the checksum of every block of every file, apart from separately stored large values. Reads everything.
    /// Fails at the first damaged block, with the name of its file.
    pub fn verify_files(&self) -> Result<(), EngineError> {
        let mut error: *mut c_char = ptr::null_mut();
        // SAFETY: the database lives through the call, which keeps no pointer; the error is null or handed over.
        let detail = unsafe {
            ffi::rocksdb_verify_checksum(self.db.as_raw_ptr(), &raw mut error);
            take_error(error)
        };
        detail.map_or(Ok(()), |detail| Err(EngineError::Corrupt { detail }))
    }

    /// Scans `range` without verifying the checksums of blocks, in ascending order: pairs may be wrong, and the newest
    /// version of a pair may be hidden by an older one. For reading what is left of damaged blocks.
    #[must_use]
    pub fn scan_unverified(&self, space: Space, range: ScanRange<'_>) -> Box<dyn Scan> {
        let mut read = ReadOptions::default();
        read.set_verify_checksums(false);
        // Verified reads must not find these blocks in the cache.
        read.fill_cache(false);
        let snapshot = Arc::new(self.view(Tier::Disk));
        view::scan_with(snapshot, space, range, Direction::Ascending, read)
    }

    /// Scans `range` in ascending order, as a snapshot of this moment has it. Blocks that are read do not go into the cache.
    #[must_use]
    pub fn scan_uncached(&self, space: Space, range: ScanRange<'_>) -> Box<dyn Scan> {
        let mut read = ReadOptions::default();
        read.fill_cache(false);
        let snapshot = Arc::new(self.view(Tier::Disk));
        view::scan_with(snapshot, space, range, Direction::Ascending, read)
    }

    /// The files that hold pairs. Reads no pairs.
    pub fn files(&self) -> Result<Vec<EngineFile>, EngineError> {
        let space = |name: &str| Space::ALL.into_iter().find(|space| space.name() == name);
        let file = |file: rocksdb::LiveFile| EngineFile {
            name: file.name.trim_start_matches('/').to_owned(),
            space: space(&file.column_family_name),
            bytes: file.size as u64,
            first: file.start_key.unwrap_or_default(),
            last: file.end_key.unwrap_or_default(),
        };
        Ok(self.db.live_files()?.into_iter().map(file).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound::Unbounded;
    use std::path::PathBuf;

    use super::*;
    use crate::{Batch, Engine};

    fn options() -> EngineOptions {
        EngineOptions { cache_bytes: 8 << 20, write_buffer_bytes: 8 << 20, ..EngineOptions::default() }
    }

    /// An engine of two hundred rows on disk.
    fn made(dir: &Path) {
        let engine = RocksEngine::open(dir, &options()).unwrap();
        let mut batch = Batch::new();
        for row in 0..200_u32 {
            let value = vec![row as u8; 400 + row as usize];
            batch.put(Space::Rows, format!("key {row:03}").as_bytes(), value.into());
        }
        engine.write(batch).unwrap();
        engine.flush().unwrap();
    }

    fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        paths.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
    }

    fn rows(engine: &RocksEngine) -> usize {
        let mut scan =
            engine.snapshot().unwrap().scan(Space::Rows, (Unbounded, Unbounded), Direction::Ascending);
        let mut rows = 0;
        while scan.next().unwrap().is_some() {
            rows += 1;
        }
        rows
    }

    fn rows_file(dir: &Path) -> PathBuf {
        let engine = RocksEngine::open_read_only(dir, &options(), Tolerance::None).unwrap();
        let files = engine.files().unwrap();
        let file = files.iter().find(|file| file.space == Some(Space::Rows)).unwrap();
        assert_eq!((&file.first[..], &file.last[..]), (&b"key 000"[..], &b"key 199"[..]));
        dir.join(&file.name)
    }

    #[test]
    fn reading_changes_no_file() {
        let dir = tempfile::tempdir().unwrap();
        made(dir.path());
        assert_eq!(missing_spaces(dir.path()).unwrap(), []);
        let before = contents(dir.path());
        let engine = RocksEngine::open_read_only(dir.path(), &options(), Tolerance::None).unwrap();
        assert_eq!(rows(&engine), 200);
        engine.verify_files().unwrap();
        assert!(engine.write(Batch::new()).is_err() || engine.flush().is_err());
        drop(engine);
        assert!(contents(dir.path()) == before);
    }

    #[test]
    fn a_damaged_block_is_named_and_what_is_left_of_it_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        made(dir.path());
        let path = rows_file(dir.path());
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[1000] ^= 4;
        std::fs::write(&path, bytes).unwrap();
        let engine = RocksEngine::open_read_only(dir.path(), &options(), Tolerance::Damage).unwrap();
        let cause = engine.verify_files().unwrap_err().to_string();
        assert!(cause.contains(path.file_name().unwrap().to_str().unwrap()), "{cause}");
        let mut scan = engine.scan_unverified(Space::Rows, (Unbounded, Unbounded));
        let mut rows = 0;
        while scan.next().unwrap().is_some() {
            rows += 1;
        }
        assert_eq!(rows, 200);
        let snapshot = engine.snapshot().unwrap();
        assert!(snapshot.scan(Space::Rows, (Unbounded, Unbounded), Direction::Ascending).next().is_err());
    }

    #[test]
    fn an_engine_without_its_list_of_files_is_repaired_in_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        made(&from);
        std::fs::create_dir(&to).unwrap();
        for path in contents(&from).keys().filter(|path| path.extension().is_some_and(|end| end == "sst")) {
            std::fs::hard_link(path, to.join(path.file_name().unwrap())).unwrap();
        }
        let engine = RocksEngine::open_repaired(&to, &options()).unwrap();
        assert_eq!(rows(&engine), 200);
        drop(engine);
        assert_eq!(rows(&RocksEngine::open(&from, &options()).unwrap()), 200);
    }
}
