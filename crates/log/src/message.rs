//! The content of messages between replicas: its bytes, and their checks. docs/formats/message.md.
//!
//! Decoding never panics, whatever bytes a link delivers.

use bytes::Bytes;
use io::ReadFields as _;
use raft::eraftpb::{Entry, EntryType, Message as RaftMessage, MessageType};

use crate::record::{EntryKind, PAYLOAD_BYTES_MAX};

/// The version this program writes, and the only one it reads.
const VERSION: u8 = 1;
/// Positions and terms are below this, so arithmetic on them never overflows.
const NUMBER_MAX: u64 = 1 << 62;
/// The longest context of a Raft message.
const CONTEXT_BYTES_MAX: usize = 64;
/// Bytes of an entry before its payload.
pub(crate) const ENTRY_HEAD_BYTES: usize = 13;

const KIND_CONSENSUS: u8 = 1;
const KIND_RECEIVED: u8 = 2;
const KIND_NEEDS_ROWS: u8 = 3;
const KIND_REMOVED: u8 = 4;
const KIND_QUIESCE: u8 = 5;
const KIND_QUIESCED: u8 = 6;
const KIND_RECOVERING: u8 = 7;

/// An entry's kind and the proposed bytes. Consensus does not see these.
pub(crate) type Payload = (EntryKind, Bytes);

/// The content of a message.
#[allow(clippy::large_enum_variant, reason = "nearly all are Raft messages, and none is kept")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    /// A Raft message.
    Consensus {
        /// The message. Its entries are empty.
        message: RaftMessage,
        /// The payloads of its entries, one for each.
        payloads: Vec<Payload>,
        /// The soft position of a leader.
        soft: u64,
    },
    /// The follower has written the log of the leader of `term` up to `index`.
    Received { term: u64, index: u64 },
    /// The rows of the sender are invalid.
    NeedsRows { term: u64 },
    /// The receiver was removed from the group.
    Removed,
    /// From a leader: everything up to `index` is committed, and the group may quiesce.
    Quiesce { term: u64, index: u64 },
    /// The follower has quiesced, and expects no heartbeats.
    Quiesced { term: u64, index: u64 },
    /// The follower's log ends at `index`, although it had confirmed more to the leader of `term`.
    Recovering { term: u64, index: u64 },
}

/// The Raft messages that replicas send to each other, with their numbers on the wire.
const TYPES: [(u8, MessageType); 9] = [
    (1, MessageType::MsgAppend),
    (2, MessageType::MsgAppendResponse),
    (3, MessageType::MsgRequestVote),
    (4, MessageType::MsgRequestVoteResponse),
    (5, MessageType::MsgHeartbeat),
    (6, MessageType::MsgHeartbeatResponse),
    (7, MessageType::MsgTimeoutNow),
    (8, MessageType::MsgRequestPreVote),
    (9, MessageType::MsgRequestPreVoteResponse),
];

/// Whether replicas send messages of this type to each other.
pub(crate) fn is_sent(message: &RaftMessage) -> bool {
    TYPES.iter().any(|(_, known)| *known == message.get_msg_type())
}

impl Content {
    pub fn encode(&self) -> Bytes {
        let mut out = vec![VERSION];
        match self {
            Content::Consensus { message, payloads, soft } => {
                let payload_bytes: usize =
                    payloads.iter().map(|(_, bytes)| ENTRY_HEAD_BYTES + bytes.len()).sum();
                out.reserve(payload_bytes + 128);
                out.push(KIND_CONSENSUS);
                encode_message(message, payloads, *soft, &mut out);
            }
            Content::Received { term, index } => numbers(KIND_RECEIVED, &[*term, *index], &mut out),
            Content::NeedsRows { term } => numbers(KIND_NEEDS_ROWS, &[*term], &mut out),
            Content::Removed => out.push(KIND_REMOVED),
            Content::Quiesce { term, index } => numbers(KIND_QUIESCE, &[*term, *index], &mut out),
            Content::Quiesced { term, index } => numbers(KIND_QUIESCED, &[*term, *index], &mut out),
            Content::Recovering { term, index } => numbers(KIND_RECOVERING, &[*term, *index], &mut out),
        }
        Bytes::from(out)
    }

    /// Reads the body of a message; `None` if it is malformed. Payloads share the memory of the body.
    pub fn decode(body: &Bytes) -> Option<Content> {
        let mut body = body.clone();
        if body.read_u8()? != VERSION {
            return None;
        }
        let content = match body.read_u8()? {
            KIND_CONSENSUS => decode_message(&mut body)?,
            KIND_RECEIVED => {
                Content::Received { term: read_number(&mut body)?, index: read_number(&mut body)? }
            }
            KIND_NEEDS_ROWS => Content::NeedsRows { term: read_number(&mut body)? },
            KIND_REMOVED => Content::Removed,
            KIND_QUIESCE => {
                Content::Quiesce { term: read_number(&mut body)?, index: read_number(&mut body)? }
            }
            KIND_QUIESCED => {
                Content::Quiesced { term: read_number(&mut body)?, index: read_number(&mut body)? }
            }
            KIND_RECOVERING => {
                Content::Recovering { term: read_number(&mut body)?, index: read_number(&mut body)? }
            }
            _ => return None,
        };
        body.is_empty().then_some(content)
    }
}

fn numbers(kind: u8, numbers: &[u64], out: &mut Vec<u8>) {
    out.push(kind);
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

fn encode_message(message: &RaftMessage, payloads: &[Payload], soft: u64, out: &mut Vec<u8>) {
    let kind = TYPES.iter().find(|(_, known)| *known == message.get_msg_type());
    let kind = kind.map_or(0, |(number, _)| *number);
    let RaftMessage { term, log_term, index, commit, commit_term, reject_hint, .. } = *message;
    numbers(kind, &[term, log_term, index, commit, commit_term, reject_hint, soft], out);
    out.push(u8::from(message.reject));
    out.push(message.context.len() as u8);
    out.extend_from_slice(&message.context);
    out.extend_from_slice(&(payloads.len() as u32).to_le_bytes());
    for (entry, (kind, payload)) in message.entries.iter().zip(payloads) {
        out.extend_from_slice(&entry.term.to_le_bytes());
        out.push(kind.flags());
        out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        out.extend_from_slice(payload);
    }
}

fn decode_message(body: &mut Bytes) -> Option<Content> {
    let kind = body.read_u8()?;
    let (_, kind) = TYPES.iter().find(|(number, _)| *number == kind)?;
    let mut message = RaftMessage::default();
    message.set_msg_type(*kind);
    for field in [
        &mut message.term,
        &mut message.log_term,
        &mut message.index,
        &mut message.commit,
        &mut message.commit_term,
        &mut message.reject_hint,
    ] {
        *field = read_number(body)?;
    }
    let soft = read_number(body)?;
    message.reject = match body.read_u8()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let context_bytes = usize::from(body.read_u8()?);
    if context_bytes > CONTEXT_BYTES_MAX {
        return None;
    }
    message.context = body.read_bytes(context_bytes)?.to_vec();
    let count = body.read_u32()? as usize;
    if count > 0 && *kind != MessageType::MsgAppend {
        return None;
    }
    let mut payloads = Vec::new();
    for nth in 0..count {
        let term = read_number(body)?;
        let kind = EntryKind::from_flags(body.read_u8()?)?;
        let payload_bytes = body.read_u32()? as usize;
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return None;
        }
        payloads.push((kind, body.read_bytes(payload_bytes)?));
        message.entries.push(empty_entry(message.index + 1 + nth as u64, term, kind));
    }
    Some(Content::Consensus { message, payloads, soft })
}

/// An entry as consensus sees it.
pub(crate) fn empty_entry(index: u64, term: u64, kind: EntryKind) -> Entry {
    let mut entry = Entry { index, term, ..Entry::default() };
    if kind == EntryKind::Members {
        entry.set_entry_type(EntryType::EntryConfChange);
    }
    entry
}

/// A number of consensus; `None` if it is malformed.
fn read_number(body: &mut Bytes) -> Option<u64> {
    body.read_u64().filter(|number| *number < NUMBER_MAX)
}

#[cfg(test)]
mod tests {
    use io::Random;
    use io::sim::SimRandom;

    use super::*;
    use crate::lsn::Durability;

    fn append() -> Content {
        let mut message = RaftMessage { term: 3, log_term: 2, index: 6, commit: 5, ..RaftMessage::default() };
        message.set_msg_type(MessageType::MsgAppend);
        let kinds = [
            EntryKind::Proposed(Durability::Hard),
            EntryKind::Proposed(Durability::Soft),
            EntryKind::Election,
            EntryKind::Members,
        ];
        let mut payloads = Vec::new();
        for (nth, kind) in kinds.into_iter().enumerate() {
            message.entries.push(empty_entry(7 + nth as u64, 3, kind));
            payloads.push((kind, Bytes::from(vec![nth as u8; nth])));
        }
        Content::Consensus { message, payloads, soft: 4 }
    }

    fn one_of_each() -> Vec<Content> {
        let mut vote =
            RaftMessage { term: 9, context: b"CampaignTransfer".to_vec(), ..RaftMessage::default() };
        vote.set_msg_type(MessageType::MsgRequestVote);
        vote.reject = true;
        vec![
            append(),
            Content::Consensus { message: vote, payloads: Vec::new(), soft: 0 },
            Content::Received { term: 1, index: 2 },
            Content::NeedsRows { term: 3 },
            Content::Removed,
            Content::Quiesce { term: 4, index: 5 },
            Content::Quiesced { term: 4, index: 5 },
            Content::Recovering { term: 6, index: 7 },
        ]
    }

    #[test]
    fn a_message_reads_back_and_a_cut_one_is_none() {
        for content in one_of_each() {
            let bytes = content.encode();
            assert_eq!(Content::decode(&bytes), Some(content));
            for len in 0..bytes.len() {
                assert_eq!(Content::decode(&bytes.slice(..len)), None);
            }
        }
    }

    #[test]
    fn no_bytes_panic() {
        let random = SimRandom::new(1);
        let messages = one_of_each();
        for _ in 0..50_000 {
            let whole = messages[random.below(messages.len() as u64) as usize].encode();
            let mut bytes = whole.to_vec();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next_u64() as u8;
            }
            drop(Content::decode(&Bytes::from(bytes)));
        }
    }
}
