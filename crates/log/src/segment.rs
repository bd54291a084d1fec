//! The name and the header of a segment. docs/formats/log.md.

use std::path::{Path, PathBuf};

use crate::record;

pub(crate) const SEGMENT_HEADER_BYTES: usize = 64;
/// The format this program writes, and the newest it reads.
pub(crate) const FORMAT_VERSION: u16 = 3;

const MAGIC: &[u8; 8] = b"RKNDLLOG";
const SUFFIX: &str = ".segment";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The format of its records.
    pub version: u16,
    /// The initial value of every record checksum.
    pub salt: u32,
    /// The segment's number.
    pub number: u64,
    /// The id of the log that the segment belongs to.
    pub log_id: u64,
    /// The number of the previous segment; zero for none.
    pub previous: u64,
    /// Its length in bytes.
    pub previous_bytes: u64,
    /// Bytes of this header and the group states after it, which are durable from the start.
    pub head_bytes: u64,
}

/// Why bytes are not a segment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The bytes are not the header of a segment, or they are damaged.
    #[error("not a segment header")]
    Invalid,
    /// A later version of the program wrote the segment.
    #[error("format version {found} is newer than {FORMAT_VERSION}")]
    Version { found: u16 },
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.salt.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.log_id.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.previous.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.previous_bytes.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.head_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header from the start of a segment.
    pub fn decode(segment: &[u8]) -> Result<SegmentHeader, HeaderError> {
        let bytes: &[u8; SEGMENT_HEADER_BYTES] = segment.first_chunk().ok_or(HeaderError::Invalid)?;
        let u64_at = |offset: usize| record::u64_at(bytes, offset);
        let u32_at = |offset: usize| (u64_at(offset & !7) >> ((offset & 7) * 8)) as u32;
        if bytes[..8] != MAGIC[..] || crc32c::crc32c(&bytes[..60]) != u32_at(60) {
            return Err(HeaderError::Invalid);
        }
        let found = u16::from_le_bytes([bytes[8], bytes[9]]);
        if found > FORMAT_VERSION {
            return Err(HeaderError::Version { found });
        }
        Ok(SegmentHeader {
            version: found,
            salt: u32_at(12),
            number: u64_at(16),
            log_id: u64_at(24),
            previous: u64_at(32),
            previous_bytes: u64_at(40),
            head_bytes: u64_at(48),
        })
    }
}

pub(crate) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:010}{SUFFIX}"))
}

/// The number in the name of a segment; `None` for other names.
pub(crate) fn segment_number(path: &Path) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
    if digits.len() < 10 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader {
        version: FORMAT_VERSION,
        salt: 1,
        number: 2,
        log_id: 3,
        previous: 4,
        previous_bytes: 5,
        head_bytes: 6,
    };

    #[test]
    fn a_header_reads_back_and_every_changed_bit_is_noticed() {
        let mut bytes = HEADER.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(HEADER));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_later_version_is_told_from_damage() {
        let mut bytes = HEADER.encode();
        bytes[8] = FORMAT_VERSION as u8 + 1;
        let crc = crc32c::crc32c(&bytes[..60]).to_le_bytes();
        bytes[60..].copy_from_slice(&crc);
        assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderError::Version { found: FORMAT_VERSION + 1 }));
    }

    #[test]
    fn names_hold_numbers() {
        let path = segment_path(Path::new("/d"), 42);
        assert_eq!(path, Path::new("/d/0000000042.segment"));
        assert_eq!(segment_number(&path), Some(42));
        assert_eq!(segment_number(Path::new("/d/next.tmp")), None);
        assert_eq!(segment_number(Path::new("/d/+000000042.segment")), None);
    }
}
