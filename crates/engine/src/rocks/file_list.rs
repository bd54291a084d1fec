//! Verifies RocksDB's list of its files (`MANIFEST`) before RocksDB reads it.
//!
//! RocksDB takes a record whose stated length reaches beyond the end of the file for an append that was not completed, and ignores
//! it and all that follow. It would open the engine without the files that these add, and delete them. With some other
//! wrong lengths it reads forever. So every record is verified here, and a list that ends early is accepted only if no
//! valid record follows.
//! Source: `db/log_format.h` and `db/log_reader.cc` of RocksDB.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::EngineError;

/// A record does not cross the end of a block: it is divided into fragments.
pub(super) const BLOCK_BYTES: usize = 32 << 10;
/// The masked checksum of the kind and the content, the length of the content, the kind.
pub(super) const HEADER_BYTES: usize = 7;
/// Kinds of fragments: a whole record, the first, a middle one, the last.
const KINDS: std::ops::RangeInclusive<u8> = 1..=4;
const MASK_DELTA: u32 = 0xa282_ead8;

/// Verifies the list of the files in `dir`. A directory without one is an engine that is not made yet.
///
/// Fails with [`EngineError::Corrupt`], which names the file and the offset of the damage.
pub(super) fn verify(dir: &Path) -> Result<(), EngineError> {
    let Some(current) = read(&dir.join("CURRENT"))? else { return Ok(()) };
    let name = String::from_utf8_lossy(&current);
    let name = name.trim_end_matches('\n');
    if !name.starts_with("MANIFEST-") || name.contains('/') {
        return Err(EngineError::Corrupt { detail: "the file CURRENT names no list of files".to_owned() });
    }
    let list = read(&dir.join(name))?;
    let list =
        list.ok_or_else(|| EngineError::Corrupt { detail: format!("the list of files {name} is missing") })?;
    match damage(&list) {
        None => Ok(()),
        Some(at) => {
            let detail = format!("the list of files {name} has damage at byte {at}");
            Err(EngineError::Corrupt { detail })
        }
    }
}

/// Removes the end of the list of the files in `dir` that no valid record follows: the last append, which a power loss may
/// leave with parts that were never written. RocksDB refuses such an end if it has the length of a whole record. Returns
/// whether there was one.
///
/// Only for a directory that no process has open.
pub(super) fn remove_torn_end(dir: &Path) -> Result<bool, EngineError> {
    let Some(current) = read(&dir.join("CURRENT"))? else { return Ok(false) };
    let path = dir.join(String::from_utf8_lossy(&current).trim_end_matches('\n'));
    let Some(list) = read(&path)? else { return Ok(false) };
    let end = valid_bytes(&list);
    if end >= list.len() || damage(&list).is_some() {
        return Ok(false);
    }
    let file = fs::File::options().write(true).open(&path);
    let cut = file.and_then(|file| file.set_len(end as u64).and_then(|()| file.sync_all()));
    cut.map_err(|cause| EngineError::Io { detail: format!("{}: {cause}", path.display()) })?;
    tracing::warn!(
        "the list of files ends with an unfinished append, which is removed: {}, from byte {end}",
        path.display()
    );
    Ok(true)
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, EngineError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(EngineError::Io { detail: format!("{}: {cause}", path.display()) }),
    }
}

/// The offset of the first damaged record.
pub(super) fn damage(list: &[u8]) -> Option<usize> {
    let at = valid_bytes(list);
    // The last append was not completed, unless it was followed by others.
    (at + 1..list.len()).any(|later| fragment(list, later).is_some()).then_some(at)
}

/// The bytes before the first record that is not valid.
fn valid_bytes(list: &[u8]) -> usize {
    let mut at = 0;
    while at < list.len() {
        let left = BLOCK_BYTES - at % BLOCK_BYTES;
        match fragment(list, at) {
            _ if left < HEADER_BYTES => at += left,
            Some(bytes) => at += bytes,
            None => break,
        }
    }
    at
}

/// The bytes of the fragment at `at`, if it is valid.
fn fragment(list: &[u8], at: usize) -> Option<usize> {
    let (head, rest) = list.get(at..)?.split_first_chunk::<HEADER_BYTES>()?;
    let [c0, c1, c2, c3, l0, l1, kind] = *head;
    let bytes = usize::from(u16::from_le_bytes([l0, l1]));
    let left = BLOCK_BYTES - at % BLOCK_BYTES;
    if !KINDS.contains(&kind) || HEADER_BYTES + bytes > left {
        return None;
    }
    let content = rest.get(..bytes)?;
    (checksum(kind, content) == u32::from_le_bytes([c0, c1, c2, c3])).then_some(HEADER_BYTES + bytes)
}

/// The checksum of a fragment, as its header has it.
pub(super) fn checksum(kind: u8, content: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&[kind]), content).rotate_right(15).wrapping_add(MASK_DELTA)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rocks::{EngineOptions, RocksEngine};
    use crate::{Batch, Engine, Space};

    /// The list of an engine with some flushed files.
    fn made(dir: &Path) -> (std::path::PathBuf, Vec<u8>) {
        let options = EngineOptions { cache_bytes: 8 << 20, ..EngineOptions::default() };
        let engine = RocksEngine::open(dir, &options).unwrap();
        for row in 0..4_u8 {
            let mut batch = Batch::new();
            batch.put(Space::Rows, &[row; 9], vec![row; 100].into());
            engine.write(batch).unwrap();
            engine.flush().unwrap();
        }
        drop(engine);
        let current = fs::read_to_string(dir.join("CURRENT")).unwrap();
        let path = dir.join(current.trim());
        let list = fs::read(&path).unwrap();
        (path, list)
    }

    #[test]
    fn every_changed_byte_is_found_before_the_last_record() {
        let dir = tempfile::tempdir().unwrap();
        verify(dir.path()).unwrap();
        let (path, whole) = made(dir.path());
        verify(dir.path()).unwrap();
        let mut ends = vec![0];
        while let Some(bytes) = fragment(&whole, ends[ends.len() - 1]) {
            ends.push(ends[ends.len() - 1] + bytes);
        }
        assert!(ends.len() > 5 && ends[ends.len() - 1] == whole.len(), "{ends:?}");
        let last = ends[ends.len() - 2];
        for at in 0..whole.len() {
            for change in [1, 0x80, 0xFF] {
                let mut list = whole.clone();
                list[at] ^= change;
                assert_eq!(damage(&list).is_some(), at < last, "byte {at} of {}, last {last}", whole.len());
            }
        }
        // A power loss may leave a last record of full length.
        assert!(!remove_torn_end(dir.path()).unwrap());
        let options = EngineOptions { cache_bytes: 8 << 20, ..EngineOptions::default() };
        let mut list = whole.clone();
        let end = list.len() - 1;
        list[end] ^= 0xFF;
        fs::write(&path, &list).unwrap();
        let engine = RocksEngine::open(dir.path(), &options).unwrap();
        assert_eq!(engine.get(Space::Rows, &[0; 9]).unwrap().unwrap(), vec![0; 100]);
        drop(engine);
        fs::remove_dir_all(dir.path()).unwrap();
        let (path, whole) = made(dir.path());
        fs::write(&path, &whole[..last + 3]).unwrap();
        verify(dir.path()).unwrap();
        let mut list = whole;
        list[5] ^= 0x40;
        fs::write(&path, list).unwrap();
        let refused = RocksEngine::open(dir.path(), &options).err().unwrap().to_string();
        assert!(refused.contains("has damage at byte 0"), "{refused}");
        fs::write(dir.path().join("CURRENT"), "x").unwrap();
        assert!(verify(dir.path()).is_err());
    }
}
