//! Segments of the log, as recovery reads them after a crash.

use io::sim::Chance;
use log::recovery::{ScanError, scan_segment};
use log::{EntryKind, Record};

use super::{Outcome, Target};

pub struct LogRecovery;

const HEADER_BYTES: usize = 64;
const RECORD_BYTES: usize = 40;
const ALIGN: usize = 8;
const SALT: u32 = 0x5A17;

impl Target for LogRecovery {
    fn name(&self) -> &'static str {
        "log"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut head = segment();
        push(&mut head, 3, 0, [7, 11, 0], &[11_u64.to_le_bytes(), 12_u64.to_le_bytes()].concat());
        push(&mut head, 2, 0, [7, 4, 2], &11_u64.to_le_bytes());
        push(&mut head, 5, 0, [7, 9, 2], &8_u64.to_le_bytes());
        push(&mut head, 6, 0, [8, 0, 0], &[]);
        let mut full = head.clone();
        let durable = full.len() as u64;
        push(&mut full, 7, 0, [0, 1, durable], &[]);
        push(&mut full, 1, 2, [7, 10, 3], &[]);
        push(&mut full, 1, 1, [7, 11, 3], b"an entry of some length");
        push(&mut full, 1, 0, [7, 12, 3], &[0; 100]);
        push(&mut full, 4, 0, [9, 100, 5], &[]);
        let mut marked = full.clone();
        let durable = marked.len() as u64;
        push(&mut marked, 7, 0, [0, 1, durable], &[]);
        let mut torn = full.clone();
        torn.truncate(full.len() - 60);
        vec![segment(), head, full, marked, torn]
    }

    fn dictionary(&self) -> &'static [&'static [u8]] {
        &[
            b"RKNDLLOG",
            b"\0\0\0\0\0\0\0\0",
            b"\x01\0\0\0\0\0\0\0",
            b"\x07\0\0\0\0\0\0\0",
            b"\x01\x01",
            b"\x02\0",
            b"\x07\0",
            b"\xff\xff\xff\xff",
            b"\0\0\0\x08",
        ]
    }

    /// Corrects the checksums of the header and of records up to a random one, each with the length it states.
    fn repair(&self, input: &mut Vec<u8>, chance: &mut Chance) {
        if input.len() < HEADER_BYTES {
            return;
        }
        let checksum = crc32c::crc32c(&input[..60]).to_le_bytes();
        input[60..64].copy_from_slice(&checksum);
        let salt = crc_at(input, 12);
        let mut at = HEADER_BYTES;
        while at + RECORD_BYTES <= input.len() && !chance.once_in(12) {
            let payload = crc_at(input, at + 4) as usize;
            let end = at.saturating_add(RECORD_BYTES).saturating_add(payload);
            if end > input.len() {
                return;
            }
            let checksum = crc32c::crc32c_append(salt, &input[at + 4..end]).to_le_bytes();
            input[at..at + 4].copy_from_slice(&checksum);
            at = end.next_multiple_of(ALIGN);
        }
    }

    fn check(&self, input: &[u8]) -> Outcome {
        match scan_segment(input) {
            Ok(records) => {
                let payloads: usize = records.iter().map(payload_bytes).sum();
                assert!(HEADER_BYTES + records.len() * RECORD_BYTES + payloads <= input.len());
                check_cut(input, records.len());
                let kinds: Vec<_> = records.iter().take(6).map(std::mem::discriminant).collect();
                Outcome::of((kinds, records.len().min(8)))
            }
            Err(ScanError::Damaged { offset }) => {
                assert!(offset >= HEADER_BYTES as u64 && offset <= input.len() as u64);
                Outcome::of(("damaged", offset.min(400) / 40))
            }
            Err(header) => Outcome::of_message(&header.to_string()),
        }
    }
}

/// Truncating a segment never makes records appear.
fn check_cut(input: &[u8], records: usize) {
    let half = HEADER_BYTES + (input.len() - HEADER_BYTES) / 2;
    if let Ok(fewer) = scan_segment(&input[..half]) {
        assert!(fewer.len() <= records);
    }
}

fn payload_bytes(record: &Record<Vec<u8>>) -> usize {
    match record {
        Record::Entry { payload, kind, .. } => {
            assert!(*kind != EntryKind::Election || payload.len() < 1 << 27);
            payload.len()
        }
        Record::CompressedEntry { frame, .. } => frame.len(),
        Record::Member { members, .. } => (members.voters.len() + members.learners.len()) * 8,
        Record::Vote { .. } | Record::Tail { .. } => 8,
        _ => 0,
    }
}

fn crc_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// A segment without records, built from the description of the format and not by the code under test.
fn segment() -> Vec<u8> {
    let mut header = b"RKNDLLOG".to_vec();
    header.extend_from_slice(&[1, 0, 0, 0]);
    header.extend_from_slice(&SALT.to_le_bytes());
    header.extend_from_slice(&1_u64.to_le_bytes());
    header.extend_from_slice(&0xABCD_u64.to_le_bytes());
    header.resize(60, 0);
    let checksum = crc32c::crc32c(&header);
    header.extend_from_slice(&checksum.to_le_bytes());
    header
}

/// Appends a record: `numbers` are group, index and term.
fn push(segment: &mut Vec<u8>, kind: u8, flags: u8, numbers: [u64; 3], payload: &[u8]) {
    let mut record = (payload.len() as u32).to_le_bytes().to_vec();
    record.extend_from_slice(&[kind, flags, 0, 0, 0, 0, 0, 0]);
    numbers.iter().for_each(|number| record.extend_from_slice(&number.to_le_bytes()));
    record.extend_from_slice(payload);
    let checksum = crc32c::crc32c_append(SALT, &record);
    segment.extend_from_slice(&checksum.to_le_bytes());
    segment.extend_from_slice(&record);
    segment.resize(segment.len().next_multiple_of(ALIGN), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_segments() {
        let counts: Vec<_> =
            LogRecovery.seeds().iter().map(|seed| scan_segment(seed).expect("a segment").len()).collect();
        assert_eq!(counts, [0, 4, 9, 10, 7]);
    }
}
