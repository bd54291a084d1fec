//! Reads the files of separately stored large values (`.blob`) without RocksDB. Each value has its own checksum.
//! Source: `db/blob/blob_log_format.h` of RocksDB.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Result};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 4] = 2_395_959_u32.to_le_bytes();
const HEADER_BYTES: usize = 30;
const FOOTER_BYTES: u64 = 32;
const RECORD_HEADER_BYTES: usize = 32;
const MASK_DELTA: u32 = 0xa282_ead8;

/// How a file of large values ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileEnd {
    /// With its footer: every value before was read.
    Whole,
    /// Without a footer, in the middle of a value, or empty: RocksDB was stopped while it wrote the file.
    Unfinished,
    /// The value at this offset is damaged; where the next one begins is unknown.
    Damaged(u64),
}

/// The files of large values in an engine's directory, the oldest first.
pub fn large_value_files(engine: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(engine)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "blob") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Calls `each` with the key and the value of every undamaged value of a file; `damaged` with the offset of each value whose bytes do
/// not match their checksum.
pub fn read_large_values(
    path: &Path,
    each: &mut dyn FnMut(&[u8], &[u8]),
    damaged: &mut dyn FnMut(u64),
) -> Result<FileEnd> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut header = [0; HEADER_BYTES];
    if !fill(&mut reader, &mut header)? {
        return Ok(FileEnd::Unfinished);
    }
    if header[..4] != MAGIC {
        return Ok(FileEnd::Damaged(0));
    }
    let (mut at, mut record) = (HEADER_BYTES as u64, Vec::new());
    loop {
        let mut head = [0; RECORD_HEADER_BYTES];
        if !fill(&mut reader, &mut head)? {
            return Ok(FileEnd::Unfinished);
        }
        if len - at == FOOTER_BYTES && head[..4] == MAGIC {
            return Ok(match is_intact(&head[..28], &head[28..]) {
                true => FileEnd::Whole,
                false => FileEnd::Damaged(at),
            });
        }
        let (key_bytes, value_bytes) = (number(&head[..8]), number(&head[8..16]));
        let bytes = key_bytes.saturating_add(value_bytes);
        if !is_intact(&head[..24], &head[24..28]) {
            return Ok(FileEnd::Damaged(at));
        }
        if bytes > len - at - RECORD_HEADER_BYTES as u64 {
            return Ok(FileEnd::Unfinished);
        }
        record.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
        if !fill(&mut reader, &mut record)? {
            return Ok(FileEnd::Unfinished);
        }
        match is_intact(&record, &head[28..]) {
            true => {
                let (key, value) = record.split_at(usize::try_from(key_bytes).unwrap_or(record.len()));
                each(key, value);
            }
            false => damaged(at),
        }
        at += RECORD_HEADER_BYTES as u64 + bytes;
    }
}

/// Fills `buffer`; false if the file ends before.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> Result<bool> {
    match reader.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// Whether `stored` is the checksum of `bytes`, in RocksDB's masked form.
fn is_intact(bytes: &[u8], stored: &[u8]) -> bool {
    let masked = crc32c::crc32c(bytes).rotate_right(15).wrapping_add(MASK_DELTA);
    stored == masked.to_le_bytes()
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use engine::rocks::{EngineOptions, RocksEngine};
    use engine::{Batch, Engine, Space};

    use super::*;

    fn read(path: &Path) -> (Vec<Vec<u8>>, Vec<u64>, FileEnd) {
        let (mut keys, mut damages) = (Vec::new(), Vec::new());
        let each = &mut |key: &[u8], value: &[u8]| {
            assert_eq!(value.len(), 300_000);
            keys.push(key.to_vec());
        };
        let end = read_large_values(path, each, &mut |at| damages.push(at)).unwrap();
        (keys, damages, end)
    }

    #[test]
    fn large_values_are_read_and_damage_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let options = EngineOptions { cache_bytes: 8 << 20, ..EngineOptions::default() };
        let engine = RocksEngine::open(dir.path(), &options).unwrap();
        let mut batch = Batch::new();
        for key in [b"a", b"b", b"c"] {
            batch.put(Space::Rows, key, vec![key[0]; 300_000].into());
        }
        engine.write(batch).unwrap();
        engine.flush().unwrap();
        drop(engine);
        let files = large_value_files(dir.path()).unwrap();
        let [path] = &files[..] else { panic!("{files:?}") };
        let whole = std::fs::read(path).unwrap();
        let all = [b"a", b"b", b"c"].map(|key| key.to_vec()).to_vec();
        assert_eq!(read(path), (all.clone(), Vec::new(), FileEnd::Whole));

        let mut bytes = whole.clone();
        bytes[HEADER_BYTES + RECORD_HEADER_BYTES + 1 + 150_000] ^= 1;
        std::fs::write(path, &bytes).unwrap();
        assert_eq!(read(path), (all[1..].to_vec(), vec![HEADER_BYTES as u64], FileEnd::Whole));

        let mut bytes = whole.clone();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(path, &bytes).unwrap();
        assert!(matches!(read(path).2, FileEnd::Damaged(_)));

        std::fs::write(path, &whole[..700_000]).unwrap();
        assert_eq!(read(path), (all[..2].to_vec(), Vec::new(), FileEnd::Unfinished));
    }
}
