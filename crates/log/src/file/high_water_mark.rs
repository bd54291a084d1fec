//! The high-water mark: a small file beside the segments with the position up to which the log was durable when it was
//! last opened, began a segment or was closed. A log that ends before that has lost durable data. docs/formats/log.md.

use std::io::{ErrorKind, Result};
use std::path::Path;

use io::Files;

use crate::error::LogError;
use crate::lsn::Position;
use crate::record;

const NAME: &str = "newest";
const NEXT_NAME: &str = "newest.tmp";
const MAGIC: &[u8; 8] = b"RKNDLEND";
const VERSION: u16 = 1;
const BYTES: usize = 48;

/// How far a log was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HighWaterMark {
    /// The log that it belongs to.
    pub log_id: u64,
    /// Everything before this point was durable.
    pub at: Position,
}

impl HighWaterMark {
    /// The mark in `dir`; `None` if there is none, as beside a log of an earlier version.
    pub fn load(files: &dyn Files, dir: &Path) -> std::result::Result<Option<HighWaterMark>, LogError> {
        let path = dir.join(NAME);
        let bytes = match files.read(&path) {
            Ok(bytes) => bytes,
            Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(cause.into()),
        };
        match HighWaterMark::decode(&bytes) {
            Some(mark) => Ok(Some(mark)),
            None => {
                Err(LogError::Damaged { segment: path, offset: 0, what: "not a high-water mark".to_owned() })
            }
        }
    }

    /// Replaces the mark in `dir` atomically. Durable on return.
    pub fn store(&self, files: &dyn Files, dir: &Path) -> Result<()> {
        let next = dir.join(NEXT_NAME);
        match files.remove(&next) {
            Err(cause) if cause.kind() != ErrorKind::NotFound => return Err(cause),
            _ => {}
        }
        let file = files.create(&next)?;
        file.append(&self.encode())?;
        file.sync_data()?;
        io::failpoint("log.mark.made");
        files.rename(&next, &dir.join(NAME))?;
        io::failpoint("log.mark.named");
        files.sync_dir(dir)
    }

    fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.log_id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.at.segment.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.at.offset.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..40]);
        bytes[40..44].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<HighWaterMark> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let u64_at = |offset: usize| record::u64_at(bytes, offset);
        let mark =
            HighWaterMark { log_id: u64_at(16), at: Position { segment: u64_at(24), offset: u64_at(32) } };
        (mark.encode() == *bytes).then_some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_back_and_every_changed_bit_is_noticed() {
        let mark = HighWaterMark { log_id: 3, at: Position { segment: 4, offset: 5 } };
        let mut bytes = mark.encode();
        assert_eq!(HighWaterMark::decode(&bytes), Some(mark));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(HighWaterMark::decode(&bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(HighWaterMark::decode(&bytes[1..]), None);
    }
}
