//! Verifies the stored data of a server while it runs, some bytes at a time.
//!
//! The engine verifies the checksum of each block that is read from disk, and lists the files of damaged ones itself
//! ([`engine::DamagedFiles`]). Rows and dictionaries have checksums of their own, which are verified here; damaged rows are
//! added to that list.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use datum::row;
use engine::rocks::RocksEngine;
use engine::{EngineError, Space};
use storage::{CompressedEngine, meta_record, row_place};

use crate::walk::{lowest_key, next_readable};

/// A check of all pairs of an engine in use.
pub struct OnlineCheck {
    engine: Arc<RocksEngine>,
    rows: Arc<CompressedEngine>,
    /// The spaces that are not finished, the one being read last.
    spaces: Vec<Space>,
    /// The first key that is not verified yet.
    next: Vec<u8>,
}

/// The result of one step of a check.
#[derive(Debug, Default)]
pub struct Verified {
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Pairs that were verified.
    pub pairs: u64,
    /// A sentence for each damaged pair and each damaged block.
    pub damages: Vec<String>,
    /// Whether everything is verified now.
    pub is_complete: bool,
}

impl OnlineCheck {
    /// A check that begins with the first pair. `rows` decodes the rows of `engine`.
    #[must_use]
    pub fn new(engine: Arc<RocksEngine>, rows: Arc<CompressedEngine>) -> OnlineCheck {
        let spaces = Space::ALL.into_iter().rev().collect();
        OnlineCheck { engine, rows, spaces, next: Vec::new() }
    }

    /// Verifies the next pairs, about `bytes_max` bytes of them, or up to a damaged block.
    ///
    /// Fails if the engine cannot be read for another reason than damage.
    pub fn step(&mut self, bytes_max: u64) -> Result<Verified, EngineError> {
        let mut verified = Verified::default();
        let Some(space) = self.spaces.last().copied() else {
            verified.is_complete = true;
            return Ok(verified);
        };
        let range = (Bound::Included(&self.next[..]), Bound::Unbounded);
        let mut scan = self.engine.scan_uncached(space, range);
        let mut last: Option<Vec<u8>> = None;
        let end = loop {
            match scan.next() {
                Ok(Some((key, value))) => {
                    verified.bytes += (key.len() + value.len()) as u64;
                    verified.pairs += 1;
                    verified.damages.extend(self.damage(space, key, value));
                    let last = last.get_or_insert_default();
                    last.clear();
                    last.extend_from_slice(key);
                    if verified.bytes >= bytes_max {
                        break Ok(false);
                    }
                }
                Ok(None) => break Ok(true),
                Err(cause) => break Err(cause),
            }
        };
        drop(scan);
        match end {
            Ok(true) => self.end_space(),
            Ok(false) => self.go_on_after(last),
            Err(cause) => self.skip(space, last, cause, &mut verified)?,
        }
        verified.is_complete = self.spaces.is_empty();
        Ok(verified)
    }

    fn end_space(&mut self) {
        self.spaces.pop();
        self.next.clear();
    }

    fn go_on_after(&mut self, last: Option<Vec<u8>>) {
        if let Some(mut last) = last {
            last.push(0);
            self.next = last;
        }
    }

    /// Goes on after a damaged block.
    fn skip(
        &mut self,
        space: Space,
        last: Option<Vec<u8>>,
        cause: EngineError,
        verified: &mut Verified,
    ) -> Result<(), EngineError> {
        let EngineError::Corrupt { .. } = cause else { return Err(cause) };
        verified.damages.push(format!("the space `{}`: {cause}", space.name()));
        let seen = match last {
            Some(last) => last,
            None => self.next.clone().max(lowest_key(&self.engine, space)?),
        };
        match next_readable(&self.engine, space, &seen)? {
            Some(next) => self.next = next.to_vec(),
            None => self.end_space(),
        }
        Ok(())
    }

    /// Why a pair from an undamaged block is damaged.
    fn damage(&self, space: Space, key: &[u8], value: &[u8]) -> Option<String> {
        match space {
            Space::Rows => {
                let (table, primary) = row_place(key)?;
                let stored = match self.rows.decode(key, Bytes::copy_from_slice(value)) {
                    // Dropped meanwhile, with its dictionary.
                    Ok(None) => return None,
                    Ok(Some(stored)) => stored,
                    Err(cause) => return Some(cause.to_string()),
                };
                let cause = row::decode(stored).err()?;
                let damage = format!("row {primary} of table {table}: {cause}");
                self.engine.damaged_files().note_row(key, &damage);
                Some(damage)
            }
            Space::Meta => {
                let cause = meta_record(key, &Bytes::copy_from_slice(value)).err()?;
                Some(cause.to_string())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use engine::rocks::EngineOptions;
    use engine::{Batch, Engine};
    use storage::CompressionOptions;

    use super::*;

    fn row(number: u64) -> Bytes {
        let fields = [
            ("id".into(), (number as f64).into()),
            ("text".into(), format!("text {number} ").repeat(30).into()),
        ];
        row::encode_shared(&fields.into_iter().collect())
    }

    fn open(dir: &std::path::Path) -> Arc<RocksEngine> {
        let options = EngineOptions { cache_bytes: 8 << 20, ..EngineOptions::default() };
        Arc::new(RocksEngine::open(dir, &options).unwrap())
    }

    /// The pairs and the damages of a whole check.
    fn checked(engine: &Arc<RocksEngine>) -> (u64, Vec<String>) {
        let rows = Arc::new(CompressedEngine::new(engine.clone(), CompressionOptions::default()));
        let mut check = OnlineCheck::new(engine.clone(), rows);
        let (mut pairs, mut damages) = (0, Vec::new());
        for _ in 0..10_000 {
            let verified = check.step(5000).unwrap();
            pairs += verified.pairs;
            damages.extend(verified.damages);
            if verified.is_complete {
                return (pairs, damages);
            }
        }
        panic!("the check does not end");
    }

    #[test]
    fn every_pair_is_verified_and_damage_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path());
        let mut batch = Batch::new();
        for number in 0..1000_u64 {
            let key = [&[7; 16][..], format!("key {number:05}").as_bytes()].concat();
            batch.put(Space::Rows, &key, row(number));
        }
        engine.write(batch).unwrap();
        engine.flush().unwrap();
        assert_eq!(checked(&engine), (1000, Vec::new()));
        // A row in an undamaged block.
        let mut batch = Batch::new();
        let mut bytes = row(1).to_vec();
        let last = bytes.len() - 20;
        bytes[last] ^= 1;
        batch.put(Space::Rows, &[&[7; 16][..], b"key 00001"].concat(), bytes.into());
        engine.write(batch).unwrap();
        engine.flush().unwrap();
        let (pairs, damages) = checked(&engine);
        assert_eq!((pairs, damages.len()), (1000, 1), "{damages:?}");
        assert_eq!(engine.damaged_files().rows().len(), 1);
        drop(engine);
        let paths = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let files = paths.filter(|path| path.extension().is_some_and(|end| end == "sst"));
        let path = files.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
        let (pairs, damages) = checked(&open(dir.path()));
        assert_eq!(damages.len(), 2, "{damages:?}");
        assert!((800..1000).contains(&pairs), "{pairs} pairs");
    }
}
