//! The log base: the state that the log of a restored replica begins with.

use bytes::Bytes;
use io::ReadFields as _;

use crate::lsn::{Lsn, Term};
use crate::member::Members;
use crate::record::{EntryKind, PAYLOAD_BYTES_MAX};
use crate::store::StoredEntry;

/// Marks the entries ahead. It stands in the place of the position and the counts of the members, and is not a valid value
/// of those.
const AHEAD: [u8; 16] = [0xff; 16];

/// The state that the log of a replica begins with after its rows were restored from a copy. Everything up to `at` is in
/// the rows. Returned by [`Log::log_base`](crate::Log::log_base) of the replica that was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBase {
    /// The log begins after this position: everything up to here is committed.
    pub at: Lsn,
    /// The term of the entry there.
    pub term: Term,
    /// The members, possibly of a later position.
    pub members: Members,
    /// The entries after `at` that are in the rows as well: applied by the copied replica, and not known to be committed.
    /// Usually none.
    pub ahead: Vec<StoredEntry>,
}

impl LogBase {
    /// The term of the last entry that is in the rows.
    pub(crate) fn last_term(&self) -> Term {
        self.ahead.last().map_or(self.term, |last| Term(last.term))
    }

    /// The position of the rows.
    #[must_use]
    pub fn rows_lsn(&self) -> Lsn {
        self.ahead.last().map_or(self.at, |last| Lsn(last.index))
    }

    /// Its bytes, for the transfer to the replica that is restored: docs/formats/cluster-request.md.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = [self.at.0, self.term.0].map(u64::to_le_bytes).concat();
        if !self.ahead.is_empty() {
            bytes.extend_from_slice(&AHEAD);
            bytes.extend_from_slice(&(self.ahead.len() as u64).to_le_bytes());
            for entry in &self.ahead {
                bytes.extend_from_slice(&entry.term.to_le_bytes());
                bytes.push(entry.kind.flags());
                bytes.extend_from_slice(&(entry.payload.len() as u64).to_le_bytes());
                bytes.extend_from_slice(&entry.payload);
            }
        }
        bytes.extend_from_slice(&self.members.encode());
        bytes
    }

    /// Reads the bytes of [`LogBase::encode`]; `None` for anything else.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Option<LogBase> {
        let (at, term) = (bytes.read_u64()?, bytes.read_u64()?);
        let mut ahead = Vec::new();
        if let Some(listed) = bytes.strip_prefix(&AHEAD) {
            bytes = listed;
            let count = bytes.read_u64()?;
            let mut least = term;
            for nth in 1..=count {
                let entry = read_entry(at.checked_add(nth)?, &mut bytes)?;
                if entry.term < least {
                    return None;
                }
                least = entry.term;
                ahead.push(entry);
            }
        }
        Some(LogBase { at: Lsn(at), term: Term(term), members: Members::decode(bytes)?, ahead })
    }
}

fn read_entry(index: u64, bytes: &mut &[u8]) -> Option<StoredEntry> {
    let (term, flags) = (bytes.read_u64()?, bytes.read_u8()?);
    let len = usize::try_from(bytes.read_u64()?).ok().filter(|len| *len <= PAYLOAD_BYTES_MAX)?;
    let payload = Bytes::copy_from_slice(bytes.read_bytes(len)?);
    // A membership change takes effect only once it is committed, so it is never among the entries after the base.
    let kind = EntryKind::from_flags(flags).filter(|kind| *kind != EntryKind::Members)?;
    Some(StoredEntry { index, term, kind, payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsn::Durability;
    use crate::member::PeerId;

    fn members() -> Members {
        let (voters, learners, removed) = (vec![PeerId(1), PeerId(2)], vec![PeerId(9)], vec![PeerId(4)]);
        Members { at: Lsn(3), voters, learners, removed }
    }

    #[test]
    fn a_log_base_reads_back_and_no_other_length_does() {
        let base = LogBase { at: Lsn(7), term: Term(2), members: members(), ahead: Vec::new() };
        let bytes = base.encode();
        assert_eq!(LogBase::decode(&bytes), Some(base));
        for len in 0..bytes.len() {
            let cut = LogBase::decode(&bytes[..len]);
            assert!(cut.is_none_or(|cut| cut.members.learners.is_empty()), "cut at {len}");
        }
        let mut forged = bytes;
        forged[24] = 200;
        assert_eq!(LogBase::decode(&forged), None, "more voters than there are bytes");
    }

    #[test]
    fn entries_ahead_read_back_and_do_not_parse_as_members() {
        let entry = |index, kind, payload: &'static [u8]| StoredEntry {
            index,
            term: 2,
            kind,
            payload: Bytes::from_static(payload),
        };
        let soft = EntryKind::Proposed(Durability::Soft);
        let ahead =
            vec![entry(8, soft, b"a row"), entry(9, EntryKind::Election, b""), entry(10, soft, b"another")];
        let base = LogBase { at: Lsn(7), term: Term(2), members: members(), ahead };
        assert_eq!(base.rows_lsn(), Lsn(10));
        let bytes = base.encode();
        // A program that does not know of such entries rejects the bytes.
        assert_eq!(Members::decode(&bytes[16..]), None);
        assert_eq!(LogBase::decode(&bytes), Some(base));
        for len in 0..bytes.len() {
            let cut = LogBase::decode(&bytes[..len]);
            assert!(cut.is_none_or(|cut| cut.members.learners.is_empty()), "cut at {len}");
        }
    }

    #[test]
    fn entries_that_no_log_accepts_are_refused() {
        let soft = EntryKind::Proposed(Durability::Soft);
        for (what, terms, kind) in [
            ("a term that falls", [3, 2], soft),
            ("a term before that of the beginning", [1, 2], soft),
            ("a change of members", [2, 2], EntryKind::Members),
        ] {
            let entry = |(index, term)| StoredEntry { index, term, kind, payload: Bytes::new() };
            let ahead = (8..).zip(terms).map(entry).collect();
            let base = LogBase { at: Lsn(7), term: Term(2), members: members(), ahead };
            assert_eq!(LogBase::decode(&base.encode()), None, "{what}");
        }
    }
}
