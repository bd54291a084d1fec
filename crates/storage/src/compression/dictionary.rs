//! Dictionaries: their numbers, and their records in the engine (docs/formats/engine-keys.md).

use std::fmt;

use bytes::Bytes;
use zstd_safe::{CCtx, CParameter, DCtx};

use crate::{TableId, layout};

/// The number of a dictionary of a table in one engine, counted from 1 and never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// The purpose of a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    /// Compresses rows when they are written.
    Written,
    /// Compresses rows again, better, after they were written.
    Settled,
    /// As `Settled`, for tables that are archives: a large part of the table's text.
    Archived,
}

impl Tier {
    fn code(self) -> u8 {
        match self {
            Tier::Written => 0,
            Tier::Settled => 1,
            Tier::Archived => 2,
        }
    }

    fn from_code(code: u8) -> Option<Tier> {
        [Tier::Settled, Tier::Archived].into_iter().find(|tier| tier.code() == code)
    }
}

/// The version of the record of a dictionary for rows that are being written. Its content is stored as it is.
const WRITTEN_VERSION: u8 = 1;
/// The version of the record of any other dictionary. Its content is stored compressed.
const SETTLED_VERSION: u8 = 2;
/// The version, the tier, two zero bytes, the checksum.
const RECORD_HEAD_BYTES: usize = 8;
/// The length of the table when the dictionary was trained, and that of the content.
const SETTLED_HEAD_BYTES: usize = 12;
/// The longest content. A damaged record does not make the reader reserve more.
const CONTENT_BYTES_MAX: usize = 256 << 20;
/// The level of zstd for the content.
const CONTENT_LEVEL: i32 = 19;

/// The engine's key of a dictionary's record.
pub(super) fn record_key(table: TableId, number: DictionaryNumber) -> [u8; 21] {
    layout::dictionary_key(table, number.0)
}

/// The record of a dictionary for rows that are being written: its content after a version and a checksum.
pub(super) fn encode_record(table: TableId, number: DictionaryNumber, content: &[u8]) -> Bytes {
    record(table, number, [WRITTEN_VERSION, 0, 0, 0], content)
}

/// The record of a dictionary for rows that are compressed again. The table took `table_bytes` bytes when the dictionary
/// was trained. `None` if zstd has no memory.
pub(super) fn encode_settled_record(
    table: TableId,
    number: DictionaryNumber,
    tier: Tier,
    table_bytes: u64,
    content: &[u8],
) -> Option<Bytes> {
    let content_bytes = u32::try_from(content.len()).ok()?;
    let mut rest = Vec::new();
    rest.extend_from_slice(&table_bytes.to_le_bytes());
    rest.extend_from_slice(&content_bytes.to_le_bytes());
    rest.extend_from_slice(&compressed(content)?);
    Some(record(table, number, [SETTLED_VERSION, tier.code(), 0, 0], &rest))
}

fn record(table: TableId, number: DictionaryNumber, start: [u8; 4], rest: &[u8]) -> Bytes {
    let mut record = Vec::with_capacity(RECORD_HEAD_BYTES + rest.len());
    record.extend_from_slice(&start);
    record.extend_from_slice(&checksum(table, number, start, rest).to_le_bytes());
    record.extend_from_slice(rest);
    Bytes::from(record)
}

/// The tier of the dictionary in `record`, and the length of its table when it was trained (zero for
/// [`Tier::Written`]). Not verified.
pub(super) fn describe_record(record: &[u8]) -> Option<(Tier, u64)> {
    let (head, rest) = record.split_first_chunk::<RECORD_HEAD_BYTES>()?;
    match head[..2] {
        [WRITTEN_VERSION, 0] => Some((Tier::Written, 0)),
        [SETTLED_VERSION, code] => Some((Tier::from_code(code)?, u64::from_le_bytes(*rest.first_chunk()?))),
        _ => None,
    }
}

/// The dictionary in `record`, if it is the record of this dictionary and undamaged.
pub(super) fn decode_record(table: TableId, number: DictionaryNumber, record: &Bytes) -> Option<Bytes> {
    let (head, rest) = record.split_first_chunk::<RECORD_HEAD_BYTES>()?;
    let (start, stored) = head.split_first_chunk::<4>()?;
    let stored = u32::from_le_bytes(stored.try_into().ok()?);
    if stored != checksum(table, number, *start, rest) {
        return None;
    }
    match *start {
        [WRITTEN_VERSION, 0, 0, 0] => Some(record.slice(RECORD_HEAD_BYTES..)),
        [SETTLED_VERSION, code, 0, 0] if Tier::from_code(code).is_some() => {
            let (rest, frame) = rest.split_first_chunk::<SETTLED_HEAD_BYTES>()?;
            decompressed(frame, u32::from_le_bytes(*rest.last_chunk()?)).map(Bytes::from)
        }
        _ => None,
    }
}

/// Whether `record` is the record of dictionary `number` of `table`, undamaged, and zstd can read its content.
pub(crate) fn is_intact_dictionary(table: TableId, number: u32, record: &Bytes) -> bool {
    let content = decode_record(table, DictionaryNumber(number), record);
    content.is_some_and(|content| zstd_safe::DDict::try_create(&content).is_some())
}

/// The checksum begins with the key, so that the dictionary of another table is not taken for this one.
fn checksum(table: TableId, number: DictionaryNumber, start: [u8; 4], rest: &[u8]) -> u32 {
    let key = crc32c::crc32c(&record_key(table, number));
    let key = match start[0] {
        WRITTEN_VERSION => key,
        _ => crc32c::crc32c_append(key, &start),
    };
    crc32c::crc32c_append(key, rest)
}

/// The content of a dictionary, compressed. All of it is in the window, so that repeated texts are found.
fn compressed(content: &[u8]) -> Option<Vec<u8>> {
    let mut context = CCtx::try_create()?;
    let window_log = (usize::BITS - content.len().leading_zeros()).clamp(17, 27);
    for parameter in [CParameter::CompressionLevel(CONTENT_LEVEL), CParameter::WindowLog(window_log)] {
        context.set_parameter(parameter).ok()?;
    }
    let mut frame = Vec::with_capacity(zstd_safe::compress_bound(content.len()));
    context.compress2(&mut frame, content).ok()?;
    Some(frame)
}

fn decompressed(frame: &[u8], content_bytes: u32) -> Option<Vec<u8>> {
    let content_bytes = usize::try_from(content_bytes).ok().filter(|bytes| *bytes <= CONTENT_BYTES_MAX)?;
    let mut content = Vec::new();
    content.try_reserve_exact(content_bytes).ok()?;
    let read = DCtx::try_create()?.decompress(&mut content, frame).ok()?;
    (read == content_bytes).then_some(content)
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
        let written = (encode_record(table, number, b"content"), (Tier::Written, 0));
        let settled = [Tier::Settled, Tier::Archived].map(|tier| {
            let record = encode_settled_record(table, number, tier, 1 << 40, b"content");
            (record.unwrap(), (tier, 1 << 40))
        });
        for (record, described) in [written].into_iter().chain(settled) {
            assert_eq!(describe_record(&record), Some(described));
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
}
