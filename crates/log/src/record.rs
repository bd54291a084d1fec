//! One record of a segment: its bytes, and how they are checked. docs/formats/log.md.

use crate::lsn::{Durability, GroupId};

/// Bytes before the payload.
pub(crate) const RECORD_HEADER_BYTES: usize = 40;
/// The longest payload.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 128 << 20;
/// Records start at multiples of this.
pub(crate) const RECORD_ALIGN: usize = 8;

const FLAG_HARD: u8 = 1;
const FLAG_ELECTION: u8 = 2;

const KIND_ENTRY: u8 = 1;
const KIND_VOTE: u8 = 2;
const KIND_MEMBER: u8 = 3;
const KIND_START: u8 = 4;
const KIND_TAIL: u8 = 5;
const KIND_TOMBSTONE: u8 = 6;
const KIND_MARK: u8 = 7;

/// Whose an entry is, and how durable it must be before it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A proposal.
    Proposed(Durability),
    /// An election's own entry: empty, never applied.
    Election,
}

/// What one record says. `P` is how a payload is held: borrowed while reading, owned in tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<P> {
    /// An entry of a group.
    Entry {
        /// The group.
        group: GroupId,
        /// Its position.
        index: u64,
        /// The term of the leader who ordered it.
        term: u64,
        /// Whose it is.
        kind: EntryKind,
        /// What was proposed.
        payload: P,
    },
    /// The group's term and vote.
    Vote {
        /// The group.
        group: GroupId,
        /// The current term.
        term: u64,
        /// The peer voted for in it; zero for none.
        vote: u64,
        /// A position known to be committed.
        commit: u64,
    },
    /// Who this replica is, and who votes.
    Member {
        /// The group.
        group: GroupId,
        /// This replica's own peer id.
        peer: u64,
        /// All peer ids that vote.
        voters: Vec<u64>,
    },
    /// The group's log begins anew after a position.
    Start {
        /// The group.
        group: GroupId,
        /// The position.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// Where the group's log ended when the segment began.
    Tail {
        /// The group.
        group: GroupId,
        /// The last position.
        index: u64,
        /// Its term.
        term: u64,
        /// The last position that was not an election's.
        proposed: u64,
    },
    /// The group is closed for good.
    Tombstone {
        /// The group.
        group: GroupId,
    },
    /// Everything before this point was durable.
    Mark {
        /// Number of the segment.
        segment: u64,
        /// Offset in it.
        offset: u64,
    },
}

/// The fixed part of a record.
struct Header {
    payload_bytes: usize,
    kind: u8,
    flags: u8,
    group: u64,
    index: u64,
    term: u64,
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(number)
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(number)
}

/// Bytes a record with this payload takes, with the zeros after it.
pub(crate) fn record_bytes(payload_bytes: usize) -> usize {
    (RECORD_HEADER_BYTES + payload_bytes).next_multiple_of(RECORD_ALIGN)
}

/// Appends `record` to `out`, which must be aligned.
pub(crate) fn encode<P: AsRef<[u8]>>(record: &Record<P>, salt: u32, out: &mut Vec<u8>) {
    let words: [u8; 8];
    let members: Vec<u8>;
    let (kind, flags, group, index, term, payload): (u8, u8, u64, u64, u64, &[u8]) = match record {
        Record::Entry { group, index, term, kind, payload } => {
            (KIND_ENTRY, entry_flags(*kind), group.0, *index, *term, payload.as_ref())
        }
        Record::Vote { group, term, vote, commit } => {
            words = vote.to_le_bytes();
            (KIND_VOTE, 0, group.0, *commit, *term, &words)
        }
        Record::Member { group, peer, voters } => {
            members = voters.iter().flat_map(|voter| voter.to_le_bytes()).collect();
            (KIND_MEMBER, 0, group.0, *peer, 0, &members)
        }
        Record::Start { group, index, term } => (KIND_START, 0, group.0, *index, *term, &[]),
        Record::Tail { group, index, term, proposed } => {
            words = proposed.to_le_bytes();
            (KIND_TAIL, 0, group.0, *index, *term, &words)
        }
        Record::Tombstone { group } => (KIND_TOMBSTONE, 0, group.0, 0, 0, &[]),
        Record::Mark { segment, offset } => (KIND_MARK, 0, 0, *segment, *offset, &[]),
    };
    let header = Header { payload_bytes: payload.len(), kind, flags, group, index, term };
    encode_parts(&header, payload, salt, out);
}

fn entry_flags(kind: EntryKind) -> u8 {
    match kind {
        EntryKind::Proposed(Durability::Hard) => FLAG_HARD,
        EntryKind::Proposed(Durability::Soft) => 0,
        EntryKind::Election => FLAG_ELECTION,
    }
}

fn encode_parts(header: &Header, payload: &[u8], salt: u32, out: &mut Vec<u8>) {
    let mut fixed = [0; RECORD_HEADER_BYTES];
    fixed[4..8].copy_from_slice(&(header.payload_bytes as u32).to_le_bytes());
    fixed[8] = header.kind;
    fixed[9] = header.flags;
    fixed[16..24].copy_from_slice(&header.group.to_le_bytes());
    fixed[24..32].copy_from_slice(&header.index.to_le_bytes());
    fixed[32..40].copy_from_slice(&header.term.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(salt, &fixed[4..]), payload);
    fixed[..4].copy_from_slice(&crc.to_le_bytes());
    let end = out.len() + record_bytes(payload.len());
    out.reserve(end - out.len());
    out.extend_from_slice(&fixed);
    out.extend_from_slice(payload);
    out.resize(end, 0);
}

/// Reads the record at the start of `bytes`, and how many bytes it takes. `None` if there is no
/// valid one.
pub(crate) fn decode(bytes: &[u8], salt: u32) -> Option<(Record<&[u8]>, usize)> {
    let header = decode_header(bytes)?;
    let end = record_bytes(header.payload_bytes);
    if end > bytes.len() {
        return None;
    }
    let checked_end = RECORD_HEADER_BYTES + header.payload_bytes;
    if crc32c::crc32c_append(salt, &bytes[4..checked_end]) != u32_at(bytes, 0) {
        return None;
    }
    if bytes[checked_end..end].iter().any(|byte| *byte != 0) {
        return None;
    }
    let record = decode_kind(&header, &bytes[RECORD_HEADER_BYTES..checked_end])?;
    Some((record, end))
}

/// Bytes of the record at the start of `bytes` if its header looks like one; not checked.
pub(crate) fn record_bytes_unchecked(bytes: &[u8]) -> Option<usize> {
    decode_header(bytes).map(|header| record_bytes(header.payload_bytes))
}

fn decode_header(bytes: &[u8]) -> Option<Header> {
    if bytes.len() < RECORD_HEADER_BYTES || bytes[10..16] != [0; 6] {
        return None;
    }
    let payload_bytes = u32_at(bytes, 4) as usize;
    (payload_bytes <= PAYLOAD_BYTES_MAX).then(|| Header {
        payload_bytes,
        kind: bytes[8],
        flags: bytes[9],
        group: u64_at(bytes, 16),
        index: u64_at(bytes, 24),
        term: u64_at(bytes, 32),
    })
}

fn decode_kind<'a>(header: &Header, payload: &'a [u8]) -> Option<Record<&'a [u8]>> {
    let group = GroupId(header.group);
    let (index, term) = (header.index, header.term);
    if header.kind != KIND_ENTRY && header.flags != 0 {
        return None;
    }
    match header.kind {
        KIND_ENTRY => {
            let kind = decode_entry_kind(header.flags)?;
            Some(Record::Entry { group, index, term, kind, payload })
        }
        KIND_VOTE => {
            let vote = only_word(payload)?;
            Some(Record::Vote { group, term, vote, commit: index })
        }
        KIND_MEMBER if payload.len().is_multiple_of(8) => {
            let voters = payload.chunks_exact(8).map(|word| u64_at(word, 0)).collect();
            Some(Record::Member { group, peer: index, voters })
        }
        KIND_START if payload.is_empty() => Some(Record::Start { group, index, term }),
        KIND_TAIL => {
            let proposed = only_word(payload)?;
            Some(Record::Tail { group, index, term, proposed })
        }
        KIND_TOMBSTONE if payload.is_empty() => Some(Record::Tombstone { group }),
        KIND_MARK if payload.is_empty() => Some(Record::Mark { segment: index, offset: term }),
        _ => None,
    }
}

fn decode_entry_kind(flags: u8) -> Option<EntryKind> {
    match flags {
        0 => Some(EntryKind::Proposed(Durability::Soft)),
        FLAG_HARD => Some(EntryKind::Proposed(Durability::Hard)),
        FLAG_ELECTION => Some(EntryKind::Election),
        _ => None,
    }
}

fn only_word(payload: &[u8]) -> Option<u64> {
    (payload.len() == 8).then(|| u64_at(payload, 0))
}

impl<P: AsRef<[u8]>> Record<P> {
    /// The same record with its payload copied.
    pub fn to_owned(&self) -> Record<Vec<u8>> {
        match self {
            Record::Entry { group, index, term, kind, payload } => Record::Entry {
                group: *group,
                index: *index,
                term: *term,
                kind: *kind,
                payload: payload.as_ref().to_vec(),
            },
            Record::Vote { group, term, vote, commit } => {
                Record::Vote { group: *group, term: *term, vote: *vote, commit: *commit }
            }
            Record::Member { group, peer, voters } => {
                Record::Member { group: *group, peer: *peer, voters: voters.clone() }
            }
            Record::Start { group, index, term } => {
                Record::Start { group: *group, index: *index, term: *term }
            }
            Record::Tail { group, index, term, proposed } => {
                Record::Tail { group: *group, index: *index, term: *term, proposed: *proposed }
            }
            Record::Tombstone { group } => Record::Tombstone { group: *group },
            Record::Mark { segment, offset } => Record::Mark { segment: *segment, offset: *offset },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<Record<Vec<u8>>> {
        let group = GroupId(7);
        let kind = EntryKind::Proposed(Durability::Hard);
        let election =
            Record::Entry { group, index: 10, term: 2, kind: EntryKind::Election, payload: Vec::new() };
        vec![
            Record::Entry { group, index: 9, term: 2, kind, payload: b"entry".to_vec() },
            election,
            Record::Vote { group, term: 3, vote: 4, commit: 5 },
            Record::Member { group, peer: 4, voters: vec![4, 5] },
            Record::Start { group, index: 9, term: 2 },
            Record::Tail { group, index: 9, term: 2, proposed: 8 },
            Record::Tombstone { group },
            Record::Mark { segment: 1, offset: 64 },
        ]
    }

    #[test]
    fn every_kind_reads_back() {
        for record in one_of_each() {
            let mut bytes = Vec::new();
            encode(&record, 5, &mut bytes);
            let (read, len) = decode(&bytes, 5).unwrap();
            assert_eq!((read.to_owned(), len), (record, bytes.len()));
            assert!(bytes.len().is_multiple_of(RECORD_ALIGN));
        }
    }

    #[test]
    fn any_changed_bit_and_any_missing_byte_is_noticed() {
        for record in one_of_each() {
            let mut bytes = Vec::new();
            encode(&record, 5, &mut bytes);
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(&bytes, 5), None, "bit {bit} of {record:?}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            for len in 0..bytes.len() {
                assert_eq!(decode(&bytes[..len], 5), None);
            }
        }
    }

    #[test]
    fn a_record_of_another_segment_is_not_valid() {
        let mut bytes = Vec::new();
        encode(&one_of_each()[0], 5, &mut bytes);
        assert_eq!(decode(&bytes, 6), None);
    }
}
