//! Verifies RocksDB's list of its files (`MANIFEST`) before RocksDB reads it.
//!
//! RocksDB takes a record whose stated length reaches beyond the end of the file for an append that was not completed, and ignores
//! it and all that follow. It would open the engine without the files that these add, and delete them. With some other
//! wrong lengths it reads forever. So every record is verified here. The last append may be incomplete: cut short, or with
//! zeros in sectors that a power loss did not write. Any other change is damage. Zeros in the append before the last one cannot be
//! told from that if the last one is a group; both are removed then, and the log has to have their rows.
//! Source: `db/log_format.h` and `db/log_reader.cc` of RocksDB.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

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
    present(dir).map(drop)
}

/// Verifies the list, and removes an append at its end that was not completed. RocksDB refuses such an end if it has the length
/// of a whole record, and reads past holes.
///
/// Only for a directory that no other process has open. Fails as [`verify`].
pub(super) fn prepare(dir: &Path) -> Result<(), EngineError> {
    let Some(List { path, bytes, valid }) = present(dir)?.filter(|list| list.valid < list.bytes) else {
        return Ok(());
    };
    let file = fs::File::options().write(true).open(&path);
    let cut = file.and_then(|file| file.set_len(valid as u64).and_then(|()| file.sync_all()));
    cut.map_err(|cause| EngineError::Io { detail: format!("{}: {cause}", path.display()) })?;
    let path = path.display();
    tracing::warn!("{path} ends with an unfinished append of {} bytes, which is removed", bytes - valid);
    Ok(())
}

/// A list of files without damage.
struct List {
    path: PathBuf,
    bytes: usize,
    /// The bytes before an append that was not completed.
    valid: usize,
}

fn present(dir: &Path) -> Result<Option<List>, EngineError> {
    let Some(current) = read(&dir.join("CURRENT"))? else { return Ok(None) };
    let name = String::from_utf8_lossy(&current);
    let name = name.trim_end_matches('\n');
    if !name.starts_with("MANIFEST-") || name.contains('/') {
        return Err(EngineError::Corrupt { detail: "the file CURRENT names no list of files".to_owned() });
    }
    let path = dir.join(name);
    let list = read(&path)?;
    let list =
        list.ok_or_else(|| EngineError::Corrupt { detail: format!("the list of files {name} is missing") })?;
    match damage(&list) {
        None => Ok(Some(List { path, bytes: list.len(), valid: valid_bytes(&list) })),
        Some(at) => {
            let detail = format!("the list of files {name} has damage at byte {at}");
            Err(EngineError::Corrupt { detail })
        }
    }
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
    (at < list.len() && !is_torn_end(list, at)).then_some(at)
}

/// Whether everything from the invalid record at `at` may belong to one append that a power loss left with holes.
///
/// An append has one record, or the records of a group, which count down to zero (tag 300 of a `VersionEdit`). A hole is at least the
/// record's part of a sector, and has zeros, because the append made the file longer.
fn is_torn_end(list: &[u8], at: usize) -> bool {
    let Some(next) = next_fragment(list, at) else {
        return is_cut(list, at) || has_hole(list, at, list.len());
    };
    let mut left = None;
    let mut from = next;
    while let Some(record_at) = next_fragment(list, from) {
        let (end, group_left) = record(list, record_at);
        from = end;
        match (group_left, left) {
            (Some(now), None) => left = Some(now),
            (Some(now), Some(before)) if now < before => left = Some(now),
            _ => return false,
        }
    }
    has_hole(list, at, next)
}

/// Whether the list ends within the fragment at `at`.
fn is_cut(list: &[u8], at: usize) -> bool {
    let Some([_, _, _, _, l0, l1, _]) = list.get(at..at + HEADER_BYTES) else { return true };
    at + HEADER_BYTES + usize::from(u16::from_le_bytes([*l0, *l1])) > list.len()
}

/// The offset of the first valid fragment from `from` on.
fn next_fragment(list: &[u8], from: usize) -> Option<usize> {
    (from..list.len()).find(|at| fragment(list, *at).is_some())
}

/// The end of the record whose valid fragment is at `at`, and the number of further records in its group, if it has one.
fn record(list: &[u8], mut at: usize) -> (usize, Option<u8>) {
    const GROUP_TAG: [u8; 2] = [0xac, 0x02];
    const KINDS_THAT_END: [u8; 2] = [1, 4];
    let mut content = Vec::new();
    while let Some(bytes) = fragment(list, at) {
        let kind = list.get(at + HEADER_BYTES - 1).copied().unwrap_or_default();
        content.extend_from_slice(list.get(at + HEADER_BYTES..at + bytes).unwrap_or_default());
        at += bytes;
        if KINDS_THAT_END.contains(&kind) {
            break;
        }
        // The rest of a block that is too short for a header has zeros.
        let left = BLOCK_BYTES - at % BLOCK_BYTES;
        at += if left < HEADER_BYTES { left } else { 0 };
    }
    let left = match content[..] {
        [.., tag0, tag1, left] if [tag0, tag1] == GROUP_TAG => Some(left),
        _ => None,
    };
    (at, left)
}

/// Whether a sector's part of the bytes from `at` to `end` has only zeros.
fn has_hole(list: &[u8], at: usize, end: usize) -> bool {
    const SECTOR_BYTES: usize = 512;
    let starts = std::iter::once(at).chain((at / SECTOR_BYTES + 1..).map(|sector| sector * SECTOR_BYTES));
    let mut parts = starts
        .take_while(|start| *start < end)
        .filter_map(|start| list.get(start..end.min((start / SECTOR_BYTES + 1) * SECTOR_BYTES)));
    parts.any(|part| part.iter().all(|byte| *byte == 0))
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

    /// A list of records with these contents, and the offsets where they begin.
    fn listed(records: &[&[u8]]) -> (Vec<u8>, Vec<usize>) {
        let (mut list, mut starts) = (Vec::new(), Vec::new());
        for content in records {
            starts.push(list.len());
            list.extend(checksum(1, content).to_le_bytes());
            list.extend(u16::try_from(content.len()).unwrap().to_le_bytes());
            list.push(1);
            list.extend(*content);
        }
        (list, starts)
    }

    #[test]
    fn holes_in_the_last_append_are_no_damage() {
        let edit = |left: u8| [&[7; 600][..], &[0xac, 0x02, left]].concat();
        let (single, group) = ([7_u8; 600], [edit(2), edit(1), edit(0)]);
        let (whole, starts) = listed(&[&single, &edit(0), &group[0], &group[1], &group[2]]);
        assert_eq!(damage(&whole), None);
        // A hole is the part of a sector of a record.
        let hole = |record: usize| {
            let mut list = whole.clone();
            let start = (starts[record] + 40) / 512 * 512;
            list[start.max(starts[record])..start + 512].fill(0);
            list
        };
        for record in [2, 3, 4] {
            assert_eq!(damage(&hole(record)), None, "record {record}");
        }
        assert_eq!(damage(&hole(0)), Some(0), "two appends follow");
        let mut flipped = whole.clone();
        flipped[starts[2] + 100] ^= 1;
        assert_eq!(damage(&flipped), Some(starts[2]), "no hole");
        let (mut followed, starts) = listed(&[&group[1], &group[2], &single]);
        followed[..512].fill(0);
        assert_eq!(damage(&followed), Some(0), "another append follows");
        assert_eq!(starts[0], 0);
        // A record whose first half is a hole.
        let mut long = vec![9; BLOCK_BYTES - HEADER_BYTES];
        let (first, _) = listed(&[&long]);
        long.truncate(1000);
        let (second, _) = listed(&[&[&long[..], &[0xac, 0x02, 0]].concat()]);
        let mut list = [first, second].concat();
        list[1024..2048].fill(0);
        assert_eq!(damage(&list), None);
    }

    #[test]
    fn every_changed_byte_is_found_but_for_the_length_of_the_last_record() {
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
                // A length beyond the end cannot be told from an append that was not completed.
                let is_told = at < last || !is_cut(&list, last);
                assert_eq!(damage(&list).is_some(), is_told, "byte {at} of {}, last {last}", whole.len());
            }
        }
        // A power loss may leave a last record of full length with zeros.
        let options = EngineOptions { cache_bytes: 8 << 20, ..EngineOptions::default() };
        let mut list = whole.clone();
        list[last..].fill(0);
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
