//! One record of a segment: its bytes, and how they are checked. docs/formats/log.md.

use crate::lsn::{Durability, GroupId};
use crate::member::{Members, PeerId};

/// Bytes before the payload.
pub(crate) const RECORD_HEADER_BYTES: usize = 40;
pub(crate) const PAYLOAD_BYTES_MAX: usize = 128 << 20;
/// Records start at multiples of this.
pub(crate) const RECORD_ALIGN: usize = 8;

const FLAG_HARD: u8 = 1;
const FLAG_ELECTION: u8 = 2;
const FLAG_MEMBERS: u8 = 4;

const KIND_ENTRY: u8 = 1;
const KIND_VOTE: u8 = 2;
/// Of format version 1: voters only, and no position.
const KIND_MEMBER_FIRST: u8 = 3;
const KIND_START: u8 = 4;
const KIND_TAIL: u8 = 5;
const KIND_TOMBSTONE: u8 = 6;
const KIND_MARK: u8 = 7;
const KIND_MEMBER: u8 = 8;
const KIND_ROWS: u8 = 9;
const KIND_REMOVED: u8 = 10;
const KIND_COMPRESSED_ENTRY: u8 = 11;

/// The kind of an entry, and how durable it must be before it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A proposal.
    Proposed(Durability),
    /// The entry that consensus adds after an election: empty, never applied.
    Election,
    /// A membership change: as durable as a hard entry, and applied by the log itself.
    Members,
}

impl EntryKind {
    /// Whether the applier is given it.
    pub(crate) fn is_proposed(self) -> bool {
        matches!(self, EntryKind::Proposed(_))
    }

    /// Its byte in records and messages.
    pub(crate) fn flags(self) -> u8 {
        match self {
            EntryKind::Proposed(Durability::Hard) => FLAG_HARD,
            EntryKind::Proposed(Durability::Soft) => 0,
            EntryKind::Election => FLAG_ELECTION,
            EntryKind::Members => FLAG_MEMBERS,
        }
    }

    /// The kind with this byte.
    pub(crate) fn from_flags(flags: u8) -> Option<EntryKind> {
        match flags {
            0 => Some(EntryKind::Proposed(Durability::Soft)),
            FLAG_HARD => Some(EntryKind::Proposed(Durability::Hard)),
            FLAG_ELECTION => Some(EntryKind::Election),
            FLAG_MEMBERS => Some(EntryKind::Members),
            _ => None,
        }
    }
}

/// One record. `P` is the type of a payload: borrowed while reading, owned in tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<P> {
    /// An entry of a group.
    Entry {
        group: GroupId,
        /// Its position.
        index: u64,
        /// The term of the leader that ordered it.
        term: u64,
        kind: EntryKind,
        /// The proposed bytes.
        payload: P,
    },
    /// An entry whose payload is compressed; otherwise as [`Record::Entry`].
    CompressedEntry {
        group: GroupId,
        index: u64,
        term: u64,
        kind: EntryKind,
        /// The frame of zstd that holds the proposed bytes, without its magic number.
        frame: P,
    },
    /// The group's term and vote.
    Vote {
        group: GroupId,
        /// The current term.
        term: u64,
        /// The peer voted for in it; zero for none.
        vote: u64,
        /// A position known to be committed.
        commit: u64,
    },
    /// The identity of this replica, and the members of the group.
    Member {
        group: GroupId,
        /// The peer id of this replica.
        peer: u64,
        /// The members, with the position of their last change.
        members: Members,
    },
    /// The log of the group restarts after a position.
    Start {
        group: GroupId,
        /// The position.
        index: u64,
        term: u64,
    },
    /// The end of the group's log when the segment began.
    Tail {
        group: GroupId,
        /// The last position.
        index: u64,
        term: u64,
        /// The last position of a proposal.
        proposed: u64,
    },
    /// Whether the engine's rows of the group are invalid.
    Rows {
        group: GroupId,
        /// They are invalid until a copy is restored.
        invalid: bool,
    },
    /// This replica was removed from the group: its entries no longer count, its peer id is never used again.
    Removed {
        group: GroupId,
        /// The replica.
        peer: u64,
    },
    /// The group is closed permanently.
    Tombstone { group: GroupId },
    /// Everything before this point was durable.
    Mark { segment: u64, offset: u64 },
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

/// The number at `offset` of a header.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(number)
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(number)
}

/// The size of a record with this payload, including padding.
pub(crate) fn record_bytes(payload_bytes: usize) -> usize {
    (RECORD_HEADER_BYTES + payload_bytes).next_multiple_of(RECORD_ALIGN)
}

/// Appends `record` to `out`, which must be aligned.
pub(crate) fn encode<P: AsRef<[u8]>>(record: &Record<P>, salt: u32, out: &mut Vec<u8>) {
    let words: [u8; 8];
    let encoded: Vec<u8>;
    let (kind, flags, group, index, term, payload): (u8, u8, u64, u64, u64, &[u8]) = match record {
        Record::Entry { group, index, term, kind, payload } => {
            (KIND_ENTRY, kind.flags(), group.0, *index, *term, payload.as_ref())
        }
        Record::CompressedEntry { group, index, term, kind, frame } => {
            (KIND_COMPRESSED_ENTRY, kind.flags(), group.0, *index, *term, frame.as_ref())
        }
        Record::Vote { group, term, vote, commit } => {
            words = vote.to_le_bytes();
            (KIND_VOTE, 0, group.0, *commit, *term, &words)
        }
        Record::Member { group, peer, members } => {
            encoded = members.encode();
            (KIND_MEMBER, 0, group.0, *peer, 0, &encoded)
        }
        Record::Rows { group, invalid } => (KIND_ROWS, 0, group.0, u64::from(*invalid), 0, &[]),
        Record::Removed { group, peer } => (KIND_REMOVED, 0, group.0, *peer, 0, &[]),
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

/// Reads the record at the start of `bytes`; returns it with its size. `None` if there is no valid one.
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

/// The size of the record at the start of `bytes`, if its header is plausible. The checksum is not verified.
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
    if !matches!(header.kind, KIND_ENTRY | KIND_COMPRESSED_ENTRY) && header.flags != 0 {
        return None;
    }
    match header.kind {
        KIND_ENTRY => {
            let kind = EntryKind::from_flags(header.flags)?;
            Some(Record::Entry { group, index, term, kind, payload })
        }
        KIND_COMPRESSED_ENTRY => {
            let kind = EntryKind::from_flags(header.flags)?;
            Some(Record::CompressedEntry { group, index, term, kind, frame: payload })
        }
        KIND_VOTE => {
            let vote = only_word(payload)?;
            Some(Record::Vote { group, term, vote, commit: index })
        }
        KIND_MEMBER_FIRST if payload.len().is_multiple_of(8) => {
            let voters = payload.chunks_exact(8).map(|word| PeerId(u64_at(word, 0))).collect();
            Some(Record::Member { group, peer: index, members: Members::first(voters) })
        }
        KIND_MEMBER => {
            let members = Members::decode(payload)?;
            Some(Record::Member { group, peer: index, members })
        }
        KIND_ROWS if payload.is_empty() && index <= 1 => Some(Record::Rows { group, invalid: index == 1 }),
        KIND_REMOVED if payload.is_empty() => Some(Record::Removed { group, peer: index }),
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
            Record::CompressedEntry { group, index, term, kind, frame } => Record::CompressedEntry {
                group: *group,
                index: *index,
                term: *term,
                kind: *kind,
                frame: frame.as_ref().to_vec(),
            },
            Record::Vote { group, term, vote, commit } => {
                Record::Vote { group: *group, term: *term, vote: *vote, commit: *commit }
            }
            Record::Member { group, peer, members } => {
                Record::Member { group: *group, peer: *peer, members: members.clone() }
            }
            Record::Rows { group, invalid } => Record::Rows { group: *group, invalid: *invalid },
            Record::Removed { group, peer } => Record::Removed { group: *group, peer: *peer },
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
    use crate::lsn::Lsn;

    fn some_members() -> Members {
        Members {
            at: Lsn(6),
            voters: vec![PeerId(4), PeerId(5)],
            learners: vec![PeerId(6)],
            removed: vec![PeerId(3)],
        }
    }

    fn one_of_each() -> Vec<Record<Vec<u8>>> {
        let group = GroupId(7);
        let kind = EntryKind::Proposed(Durability::Hard);
        let election =
            Record::Entry { group, index: 10, term: 2, kind: EntryKind::Election, payload: Vec::new() };
        vec![
            Record::Entry { group, index: 9, term: 2, kind, payload: b"entry".to_vec() },
            election,
            Record::CompressedEntry { group, index: 12, term: 2, kind, frame: b"frame".to_vec() },
            Record::Vote { group, term: 3, vote: 4, commit: 5 },
            Record::Entry { group, index: 11, term: 2, kind: EntryKind::Members, payload: vec![1; 9] },
            Record::Member { group, peer: 4, members: some_members() },
            Record::Rows { group, invalid: true },
            Record::Rows { group, invalid: false },
            Record::Removed { group, peer: 4 },
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
    fn members_of_the_first_format_version_are_read() {
        let mut bytes = Vec::new();
        let header =
            Header { payload_bytes: 16, kind: KIND_MEMBER_FIRST, flags: 0, group: 7, index: 4, term: 0 };
        let voters = [4_u64, 5].map(u64::to_le_bytes).concat();
        encode_parts(&header, &voters, 5, &mut bytes);
        let members = Members::first(vec![PeerId(4), PeerId(5)]);
        let (read, _) = decode(&bytes, 5).unwrap();
        assert_eq!(read.to_owned(), Record::Member { group: GroupId(7), peer: 4, members });
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
