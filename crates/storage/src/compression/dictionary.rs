//! Dictionaries: their numbers, and their records in the engine (docs/formats/engine-keys.md).

use std::fmt;

use bytes::Bytes;

use crate::{TableId, layout};

/// The number of a dictionary of a table in one engine, counted from 1 and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DictionaryNumber(pub u32);

/// The most bytes that a number takes in a row.
const NUMBER_BYTES_MAX: usize = 5;

impl DictionaryNumber {
    /// The number as it stands in a row, and how many of these bytes it takes: seven bits in each, the lowest first.
    /// All but the last have the highest bit set.
    pub(super) fn encode(self) -> ([u8; NUMBER_BYTES_MAX], usize) {
        let (mut bytes, mut rest, mut len) = ([0; NUMBER_BYTES_MAX], self.0, 0);
        while rest >= 0x80 {
            bytes[len] = rest as u8 | 0x80;
            (rest, len) = (rest >> 7, len + 1);
        }
        bytes[len] = rest as u8;
        (bytes, len + 1)
    }

    /// The number at the beginning of `bytes`, and the bytes after it.
    pub(super) fn decode(bytes: &[u8]) -> Option<(DictionaryNumber, &[u8])> {
        let len = bytes.iter().take(NUMBER_BYTES_MAX).position(|byte| byte & 0x80 == 0)? + 1;
        let (number, rest) = bytes.split_at(len);
        let number = number.iter().rev().try_fold(0_u32, |number, byte| {
            let shifted = number.checked_mul(0x80)?;
            shifted.checked_add(u32::from(byte & 0x7F))
        })?;
        Some((DictionaryNumber(number), rest))
    }
}

impl fmt::Display for DictionaryNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The newest version, which this program writes.
const RECORD_VERSION: u8 = 1;
/// The version, three zero bytes, the checksum.
const RECORD_HEAD_BYTES: usize = 8;

/// The engine's key of a dictionary's record.
pub(super) fn record_key(table: TableId, number: DictionaryNumber) -> [u8; 21] {
    layout::dictionary_key(table, number.0)
}

/// The bytes of a dictionary's record: its content after a version and a checksum.
pub(super) fn encode_record(table: TableId, number: DictionaryNumber, content: &[u8]) -> Bytes {
    let mut record = Vec::with_capacity(RECORD_HEAD_BYTES + content.len());
    record.extend_from_slice(&[RECORD_VERSION, 0, 0, 0]);
    record.extend_from_slice(&checksum(table, number, content).to_le_bytes());
    record.extend_from_slice(content);
    Bytes::from(record)
}

/// The dictionary in `record`, if it is the record of this dictionary and undamaged.
pub(super) fn decode_record(table: TableId, number: DictionaryNumber, record: &Bytes) -> Option<Bytes> {
    let (head, content) = record.split_first_chunk::<RECORD_HEAD_BYTES>()?;
    let (version, stored) = head.split_last_chunk()?;
    let is_intact = version == [RECORD_VERSION, 0, 0, 0]
        && u32::from_le_bytes(*stored) == checksum(table, number, content);
    is_intact.then(|| record.slice(RECORD_HEAD_BYTES..))
}

/// Whether `record` is the record of dictionary `number` of `table`, undamaged, and zstd can read its content.
pub(crate) fn is_intact_dictionary(table: TableId, number: u32, record: &Bytes) -> bool {
    let content = decode_record(table, DictionaryNumber(number), record);
    content.is_some_and(|content| zstd_safe::DDict::try_create(&content).is_some())
}

/// The checksum begins with the key, so that the dictionary of another table is not taken for this one.
fn checksum(table: TableId, number: DictionaryNumber, content: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&record_key(table, number)), content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, 127, 128, 300, 16_383, 16_384, u32::MAX] {
            let (bytes, len) = DictionaryNumber(number).encode();
            let row = [&bytes[..len], b"frame"].concat();
            assert_eq!(DictionaryNumber::decode(&row), Some((DictionaryNumber(number), &b"frame"[..])));
            assert_eq!(DictionaryNumber::decode(&bytes[..len - 1]), None);
        }
        assert_eq!(DictionaryNumber::decode(&[0xFF; 9]), None);
        assert_eq!(DictionaryNumber::decode(&[0xFF, 0xFF, 0xFF, 0xFF, 0x7F]), None, "more than 32 bits");
    }

    #[test]
    fn a_record_of_another_dictionary_is_not_taken() {
        let [table, other] = [1, 2].map(|id| TableId::from_uuid(uuid::Uuid::from_u128(id)));
        let number = DictionaryNumber(7);
        let record = encode_record(table, number, b"content");
        assert_eq!(decode_record(table, number, &record).as_deref(), Some(&b"content"[..]));
        assert_eq!(decode_record(other, number, &record), None);
        assert_eq!(decode_record(table, DictionaryNumber(8), &record), None);
        for at in 0..record.len() {
            let mut damaged = record.to_vec();
            damaged[at] ^= 4;
            assert_eq!(decode_record(table, number, &Bytes::from(damaged)), None, "byte {at}");
            assert_eq!(decode_record(table, number, &record.slice(..at)), None, "cut at {at}");
        }
    }
}
