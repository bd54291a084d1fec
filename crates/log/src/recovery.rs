//! Reads a segment that may have a torn end or be damaged. docs/formats/log.md.
//!
//! Never panics, whatever bytes a disk returns.

use crate::record::{self, RECORD_ALIGN, Record};
use crate::segment::{HeaderError, SEGMENT_HEADER_BYTES, SegmentHeader};

/// Why a segment is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// The first 64 bytes are not a header that this program reads.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// A record that was durable does not match its checksum.
    #[error("record at byte {offset} was durable and is damaged")]
    Damaged { offset: u64 },
}

/// How far the records of a segment are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentEnd {
    /// They are valid up to the last byte.
    Whole,
    /// They are invalid from this offset on, and no mark shows that they ever were durable.
    Torn { offset: usize },
    /// They are invalid from this offset on, and were durable.
    Damaged { offset: usize },
}

/// Iterates over the records of one segment.
pub(crate) struct Scanner<'a> {
    segment: &'a [u8],
    header: SegmentHeader,
    offset: usize,
}

impl<'a> Scanner<'a> {
    /// Starts after the header.
    pub fn new(segment: &'a [u8]) -> Result<Scanner<'a>, HeaderError> {
        let header = SegmentHeader::decode(segment)?;
        Ok(Scanner { segment, header, offset: SEGMENT_HEADER_BYTES })
    }

    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// The record at `offset`, if there is a valid one.
    pub fn record_at(&self, offset: usize) -> Option<Record<&'a [u8]>> {
        record::decode(self.segment.get(offset..)?, self.header.salt).map(|(record, _)| record)
    }

    /// Continues at the next valid record after a damaged one. Returns false if there is none.
    pub fn skip_damage(&mut self) -> bool {
        let mut at = self.offset + RECORD_ALIGN;
        while let Some(rest) = self.segment.get(at..).filter(|rest| !rest.is_empty()) {
            if record::decode(rest, self.header.salt).is_some() {
                self.offset = at;
                return true;
            }
            at += RECORD_ALIGN;
        }
        false
    }

    /// Why there is no further record. Call this when the iterator has ended.
    pub fn end(&self) -> SegmentEnd {
        let offset = self.offset;
        if (offset as u64) < self.header.head_bytes {
            SegmentEnd::Damaged { offset }
        } else if offset == self.segment.len() {
            SegmentEnd::Whole
        } else if self.durable_beyond(offset) {
            SegmentEnd::Damaged { offset }
        } else {
            SegmentEnd::Torn { offset }
        }
    }

    /// Whether a mark after `offset` shows that the bytes there were durable. Only marks are searched for, so each step
    /// reads no more than a record header.
    fn durable_beyond(&self, offset: usize) -> bool {
        let mut at = offset;
        while let Some(rest) = self.segment.get(at..).filter(|rest| !rest.is_empty()) {
            if record::record_bytes_unchecked(rest) == Some(record::RECORD_HEADER_BYTES)
                && let Some((Record::Mark { segment, offset: durable }, _)) =
                    record::decode(rest, self.header.salt)
                && segment == self.header.number
                && durable > offset as u64
            {
                return true;
            }
            at += RECORD_ALIGN;
        }
        false
    }
}

impl<'a> Iterator for Scanner<'a> {
    /// The offset of a record, and the record.
    type Item = (usize, Record<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let (record, bytes) = record::decode(self.segment.get(self.offset..)?, self.header.salt)?;
        let at = self.offset;
        self.offset += bytes;
        Some((at, record))
    }
}

/// Every record of a segment up to its torn tail, if it has one. Never panics.
pub fn scan_segment(segment: &[u8]) -> Result<Vec<Record<Vec<u8>>>, ScanError> {
    let mut scanner = Scanner::new(segment)?;
    let records = scanner.by_ref().map(|(_, record)| record.to_owned()).collect();
    match scanner.end() {
        SegmentEnd::Whole | SegmentEnd::Torn { .. } => Ok(records),
        SegmentEnd::Damaged { offset } => Err(ScanError::Damaged { offset: offset as u64 }),
    }
}

#[cfg(test)]
mod tests {
    use io::Random;
    use io::sim::SimRandom;

    use super::*;
    use crate::lsn::GroupId;

    const SALT: u32 = 77;

    fn segment(records: &[Record<Vec<u8>>]) -> Vec<u8> {
        segment_with_head(SEGMENT_HEADER_BYTES as u64, records)
    }

    fn segment_with_head(head_bytes: u64, records: &[Record<Vec<u8>>]) -> Vec<u8> {
        let header = SegmentHeader {
            version: 2,
            salt: SALT,
            number: 3,
            log_id: 1,
            previous: 2,
            previous_bytes: 64,
            head_bytes,
        };
        let mut bytes = header.encode().to_vec();
        for record in records {
            record::encode(record, SALT, &mut bytes);
        }
        bytes
    }

    fn starts(count: u64) -> Vec<Record<Vec<u8>>> {
        (0..count).map(|index| Record::Start { group: GroupId(1), index, term: 1 }).collect()
    }

    #[test]
    fn cut_anywhere_a_segment_reads_as_a_prefix() {
        let records = starts(4);
        let bytes = segment(&records);
        for len in SEGMENT_HEADER_BYTES..=bytes.len() {
            let whole = (len - SEGMENT_HEADER_BYTES) / 40;
            assert_eq!(scan_segment(&bytes[..len]).unwrap(), records[..whole], "cut at {len}");
        }
    }

    #[test]
    fn a_bad_record_before_valid_ones_is_a_torn_tail_unless_a_mark_says_it_was_durable() {
        let mut records = starts(4);
        let mut bytes = segment(&records);
        bytes[SEGMENT_HEADER_BYTES + 41] ^= 1;
        assert_eq!(scan_segment(&bytes).unwrap(), records[..1]);

        records.push(Record::Mark { segment: 3, offset: 64 + 40 });
        let mut bytes = segment(&records);
        bytes[SEGMENT_HEADER_BYTES + 41] ^= 1;
        assert_eq!(
            scan_segment(&bytes).unwrap(),
            records[..1],
            "the mark covers the bytes before the bad one"
        );

        records.push(Record::Mark { segment: 3, offset: 64 + 41 });
        let mut bytes = segment(&records);
        bytes[SEGMENT_HEADER_BYTES + 41] ^= 1;
        assert_eq!(scan_segment(&bytes), Err(ScanError::Damaged { offset: 104 }));
    }

    #[test]
    fn no_bytes_panic() {
        let random = SimRandom::new(1);
        let whole = segment(&starts(6));
        for round in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..random.below(6) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next_u64() as u8;
            }
            if round % 2 == 0 {
                // With a valid header the rest is read as well.
                bytes[..SEGMENT_HEADER_BYTES].copy_from_slice(&whole[..SEGMENT_HEADER_BYTES]);
            }
            bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
            let _ = scan_segment(&bytes);
        }
    }

    #[test]
    fn the_head_is_never_a_torn_tail() {
        let bytes = segment_with_head(64 + 2 * 40, &starts(3));
        assert_eq!(scan_segment(&bytes[..64 + 2 * 40]), Ok(starts(2)));
        let missing = scan_segment(&bytes[..64 + 40]);
        assert_eq!(missing, Err(ScanError::Damaged { offset: 64 + 40 }));
    }

    #[test]
    fn a_mark_of_another_segment_inside_a_payload_proves_nothing() {
        let mut forged = Vec::new();
        let mark: Record<Vec<u8>> = Record::Mark { segment: 3, offset: 1 << 40 };
        record::encode(&mark, SALT + 1, &mut forged);
        let kind = record::EntryKind::Election;
        let entry = Record::Entry { group: GroupId(1), index: 1, term: 1, kind, payload: forged };
        let mut bytes = segment(&[entry]);
        bytes[SEGMENT_HEADER_BYTES + 16] ^= 1;
        assert_eq!(scan_segment(&bytes), Ok(Vec::new()));
    }
}
