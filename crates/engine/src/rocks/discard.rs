//! Removes damaged files of which nothing is needed any more.
//!
//! A merge would have to read them. Below level 0, RocksDB deletes a file whose range of keys has no other file. Other files are
//! noted in a list, and are taken out of RocksDB's own list (`MANIFEST`) when the engine is opened next: the same
//! record that RocksDB writes when it deletes a file, as its tool `ldb unsafe_remove_sst_file` does.

use std::fs::{self, File, OpenOptions};
use std::io::{self as std_io, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use librocksdb_sys as ffi;
use rocksdb::{AsColumnFamilyRef, AsRawPtr, DB, LiveFile};

use super::column;
use super::file_list::{BLOCK_BYTES, HEADER_BYTES, checksum};
use crate::{EngineError, Space};

/// The list, in the engine's directory: a name a line.
const LIST: &str = "discarded-files";
/// How long running merges may take until a file is listed instead.
const MERGES_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a file that is not in use any more may exist.
const DELETION_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const RUNNING_MERGES: &std::ffi::CStr = c"rocksdb.num-running-compactions";

/// RocksDB's numbers for the fields of a change of its files (`db/version_edit.h`).
const FIELD_DELETED_FILE: u64 = 6;
const FIELD_COLUMN_FAMILY: u64 = 200;

/// A file as RocksDB's list has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listed {
    column_family: u32,
    level: u32,
    number: u64,
}

/// Deletes the file `name` if no other file below level 0 lies in its range of keys. Merges by RocksDB itself must be
/// switched off. False if the file must be removed another way.
pub(super) fn delete_alone(db: &DB, name: &str) -> Result<bool, EngineError> {
    match find(&db.live_files()?, name) {
        None => return Ok(true),
        Some(file) if file.level == 0 => return Ok(false),
        Some(_) => {}
    }
    // SAFETY: the database is open as long as `db` is borrowed. This waits until requested merges have ended early, and
    // the other call, which follows in every case, allows them again.
    unsafe { ffi::rocksdb_disable_manual_compaction(db.as_raw_ptr()) };
    let deleted = delete_in_range(db, name);
    // SAFETY: as above.
    unsafe { ffi::rocksdb_enable_manual_compaction(db.as_raw_ptr()) };
    deleted
}

fn delete_in_range(db: &DB, name: &str) -> Result<bool, EngineError> {
    let deadline = Instant::now() + MERGES_TIMEOUT;
    while db.property_int_value(RUNNING_MERGES)?.unwrap_or_default() > 0 {
        if Instant::now() > deadline {
            return Ok(false);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let live = db.live_files()?;
    let Some(file) = find(&live, name) else { return Ok(true) };
    let (Some(first), Some(last)) = (&file.start_key, &file.end_key) else { return Ok(false) };
    // Flushes, which go on, only add files to level 0.
    let lies_inside = |other: &&LiveFile| {
        other.level > 0
            && other.name != file.name
            && other.column_family_name == file.column_family_name
            && other.start_key.as_ref() >= Some(first)
            && other.end_key.as_ref() <= Some(last)
    };
    let space = Space::ALL.into_iter().find(|space| space.name() == file.column_family_name);
    let Some(space) = space.filter(|_| file.level > 0 && !live.iter().any(|other| lies_inside(&other)))
    else {
        return Ok(false);
    };
    db.delete_file_in_range_cf(column(db, space), first, last)?;
    Ok(find(&db.live_files()?, name).is_none())
}

/// Waits until RocksDB has deleted a file that is not in use any more, which it does in the background. Gives up after some
/// seconds.
pub(super) fn await_end(path: &Path) {
    let deadline = Instant::now() + DELETION_TIMEOUT;
    while path.exists() && Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn find<'a>(live: &'a [LiveFile], name: &str) -> Option<&'a LiveFile> {
    live.iter().find(|file| file.name.trim_start_matches('/') == name)
}

/// Notes durably that the file `name` is to be removed when the engine is opened next.
pub(super) fn list(dir: &Path, name: &str) -> Result<(), EngineError> {
    let add = || {
        let mut names = fs::read_to_string(dir.join(LIST)).unwrap_or_default();
        if names.lines().all(|listed| listed != name) {
            names.push_str(name);
            names.push('\n');
        }
        let new = dir.join(format!("{LIST}.new"));
        let mut file = File::create(&new)?;
        file.write_all(names.as_bytes())?;
        file.sync_all()?;
        fs::rename(new, dir.join(LIST))?;
        File::open(dir)?.sync_all()
    };
    add().map_err(|cause| failed(&dir.join(LIST), &cause))
}

/// Removes the listed files from the database in `dir`, which `open` opens without merging anything. Does nothing without
/// a list.
pub(super) fn remove_listed(
    dir: &Path,
    open: impl FnOnce() -> Result<DB, EngineError>,
) -> Result<(), EngineError> {
    let path = dir.join(LIST);
    let Ok(names) = fs::read_to_string(&path) else { return Ok(()) };
    let db = open()?;
    let live = db.live_files()?;
    let mut found = Vec::new();
    for name in names.lines() {
        let Some(file) = find(&live, name) else { continue };
        let space = Space::ALL.into_iter().find(|space| space.name() == file.column_family_name);
        let number = name.strip_suffix(".sst").and_then(|number| number.parse().ok());
        let (Some(space), Some(number), Ok(level)) = (space, number, u32::try_from(file.level)) else {
            continue;
        };
        // SAFETY: the column family belongs to `db`, which is open.
        let column_family = unsafe { ffi::rocksdb_column_family_handle_get_id(column(&db, space).inner()) };
        found.push((name, Listed { column_family, level, number }));
    }
    // Closes it.
    drop(db);
    let remove = || {
        for (name, file) in &found {
            append_removal(dir, *file)?;
            tracing::warn!(
                "the damaged file {name} of the storage engine is removed: its rows were replaced"
            );
        }
        fs::remove_file(&path)?;
        File::open(dir)?.sync_all()
    };
    remove().map_err(|cause| failed(&path, &cause))
}

fn failed(path: &Path, cause: &std_io::Error) -> EngineError {
    EngineError::Io { detail: format!("{}: {cause}", path.display()) }
}

/// Appends the removal of a file to the list of files of a closed database.
fn append_removal(dir: &Path, file: Listed) -> std_io::Result<()> {
    let current = fs::read_to_string(dir.join("CURRENT"))?;
    let path: PathBuf = dir.join(current.trim_end());
    let mut list = OpenOptions::new().append(true).open(&path)?;
    let at = usize::try_from(list.metadata()?.len() % BLOCK_BYTES as u64).unwrap_or_default();
    list.write_all(&framed(&removal(file), at))?;
    list.sync_all()
}

/// The record of a removal.
fn removal(file: Listed) -> Vec<u8> {
    let mut record = Vec::new();
    for number in [FIELD_DELETED_FILE, u64::from(file.level), file.number] {
        put_varint(&mut record, number);
    }
    if file.column_family != 0 {
        put_varint(&mut record, FIELD_COLUMN_FAMILY);
        put_varint(&mut record, u64::from(file.column_family));
    }
    record
}

fn put_varint(record: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        record.push(number as u8 | 0x80);
        number >>= 7;
    }
    record.push(number as u8);
}

/// The fragments of `record`, from offset `at` of a block on.
fn framed(record: &[u8], mut at: usize) -> Vec<u8> {
    let (mut out, mut rest, mut is_first) = (Vec::new(), record, true);
    loop {
        let left = BLOCK_BYTES - at;
        if left < HEADER_BYTES {
            out.resize(out.len() + left, 0);
            at = 0;
            continue;
        }
        let (part, after) = rest.split_at(rest.len().min(left - HEADER_BYTES));
        let kind: u8 = match (is_first, after.is_empty()) {
            (true, true) => 1,
            (true, false) => 2,
            (false, false) => 3,
            (false, true) => 4,
        };
        out.extend_from_slice(&checksum(kind, part).to_le_bytes());
        out.extend_from_slice(&(part.len() as u16).to_le_bytes());
        out.push(kind);
        out.extend_from_slice(part);
        (rest, is_first, at) = (after, false, at + HEADER_BYTES + part.len());
        if rest.is_empty() {
            return out;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rocks::file_list;
    use crate::rocks::{EngineOptions, RocksEngine};
    use crate::{Batch, Engine};

    #[test]
    fn a_record_may_cross_a_block() {
        let record = removal(Listed { column_family: 3, level: 0, number: 300 });
        assert_eq!(record, [6, 0, 0xac, 2, 0xc8, 1, 3]);
        assert_eq!(framed(&record, 0).len(), HEADER_BYTES + record.len());
        for left in 0..40 {
            let mut list = framed(&vec![9; BLOCK_BYTES - left - HEADER_BYTES], 0);
            let at = list.len() % BLOCK_BYTES;
            list.extend(framed(&record, at));
            assert_eq!(file_list::damage(&list), None, "{left}");
            // Only a valid record after it makes the first one damaged instead of incomplete.
            list[100] ^= 1;
            assert_eq!(file_list::damage(&list), Some(0), "{left}");
        }
    }

    fn put(engine: &RocksEngine, value: u8) {
        let mut batch = Batch::new();
        batch.delete_range(Space::Rows, b"key 0", b"key 9");
        for row in 0..2000_u32 {
            batch.put(Space::Rows, format!("key {row:05}").as_bytes(), vec![value; 300].into());
        }
        engine.write(batch).unwrap();
        engine.flush().unwrap();
    }

    #[test]
    fn a_file_of_which_nothing_is_needed_goes_at_once_or_with_the_next_start() {
        for is_merged in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let options = EngineOptions { cache_bytes: 1 << 20, ..EngineOptions::default() };
            let engine = RocksEngine::open(dir.path(), &options).unwrap();
            put(&engine, 1);
            if is_merged {
                engine
                    .compact(Space::Rows, (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded))
                    .unwrap();
            }
            let file =
                engine.files().unwrap().into_iter().find(|file| file.space == Some(Space::Rows)).unwrap();
            drop(engine);
            let path = dir.path().join(&file.name);
            let mut content = std::fs::read(&path).unwrap();
            let at = content.len() / 3;
            content[at] ^= 1;
            std::fs::write(&path, content).unwrap();

            let engine = RocksEngine::open(dir.path(), &options).unwrap();
            let read = |engine: &RocksEngine| -> Vec<bool> {
                let keys = (0..2000).map(|row| format!("key {row:05}"));
                keys.map(|key| engine.get(Space::Rows, key.as_bytes()).is_ok_and(|row| row.is_some()))
                    .collect()
            };
            assert!(read(&engine).contains(&false));
            assert_eq!(engine.damaged_files().list().len(), 1);
            put(&engine, 2);
            assert!(!read(&engine).contains(&false), "all rows are new");
            engine.discard_file(&file.name).unwrap();
            assert_eq!(engine.damaged_files().list().is_empty(), is_merged);
            assert_eq!(path.exists(), !is_merged);
            drop(engine);
            let engine = RocksEngine::open(dir.path(), &options).unwrap();
            assert!(
                engine.files().unwrap().iter().all(|listed| listed.name != file.name),
                "the file is not in use"
            );
            // It is deleted in the background.
            let deadline = Instant::now() + Duration::from_secs(20);
            while path.exists() {
                assert!(Instant::now() < deadline, "the file is gone");
                std::thread::sleep(POLL_INTERVAL);
            }
            assert!(!read(&engine).contains(&false));
            engine.compact(Space::Rows, (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)).unwrap();
            assert_eq!(engine.get(Space::Rows, b"key 00700").unwrap().unwrap()[..], [2; 300]);
            assert!(engine.damaged_files().is_empty());
        }
    }
}
