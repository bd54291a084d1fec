//! Requests between nodes about the cluster, and their bytes: docs/formats/cluster-request.md.

use bytes::{BufMut, Bytes, BytesMut};
use datum::{KeyRange, Object, PrimaryKey, row};
use io::ReadFields as _;
use log::{GroupId, Lsn, PeerId, StallCause};
use shard::{CopyRange, HistoryPosition};

use crate::rpc::copy::{put_copy_ranges, take_copy_ranges};
use crate::rpc::field::{put, put_cause, put_range, take, take_cause, take_range};

/// The first byte of a request about the cluster.
pub(crate) const FOR_CLUSTER: u8 = 0;
/// The first byte of a request of a query.
pub(crate) const FOR_QUERIES: u8 = 1;

const VERSION: u8 = 4;

/// A request about the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Request {
    /// To the leader of the catalog: write these rows if its version is still `base`.
    Commit { base: u64, rows: Vec<(PrimaryKey, Option<Object>)> },
    /// Add this server to the catalog; `server` is its row.
    Join { server: Object },
    /// The state of the replicas of these groups, of which the receiver may be the leader.
    States { groups: Vec<GroupId> },
    /// To the leader of a group: transfer the leadership to this replica.
    HandOver { group: GroupId, to: PeerId },
    /// To the leader of a group: begin a copy of its rows for the sender.
    CopyBegin { group: GroupId },
    /// The last log position of the receiver's replica of a group.
    LogPosition { group: GroupId },
    /// As [`Request::LogPosition`], for several groups.
    LogPositions { groups: Vec<GroupId> },
    /// Which of these groups the receiver has a replica of, with all rows durable.
    GroupsWithRows { groups: Vec<GroupId> },
    /// The seal number (`shard::SealState`) that the receiver's replica of a group has applied.
    SealNumber { group: GroupId },
    /// Force the members of a group to be `members` (an encoded `log::Members`).
    ResetMembers { group: GroupId, members: Bytes },
    /// The servers that the receiver is connected to.
    ConnectedServers,
    /// To the leader of the catalog: its version.
    Version,
    /// From the leader of a group to the server of a replica: the replica needs a copy, because the leader's log, which
    /// begins after `start`, no longer has the entries that it lacks, or because its rows are void.
    OfferCopy { group: GroupId, start: Lsn },
    /// The next rows of a copy, after the key `after`, for a receiver that already has the rows of `copy_ranges` there.
    CopyNext { copy: u64, after: Option<PrimaryKey>, copy_ranges: Vec<CopyRange> },
    /// To the leader of a group: keys that split its range into this many parts.
    SplitPoints { group: GroupId, parts: u64 },
    /// To the leader of a group: seal it, or open it again, by setting its seal number (`shard::SealState`).
    SetSealNumber { group: GroupId, number: u64 },
    /// The sender's log makes no progress, for this cause; `None` when it makes progress again.
    Stalled { cause: Option<StallCause> },
    /// Respond once the receiver shows this version of the catalog or a later one, or after a timeout.
    AwaitVersion { version: u64 },
    /// The newest term that the receiver knows of each of these groups.
    Terms { groups: Vec<GroupId> },
    /// To the leader of a group: switch its history on, and note that it is used. The response is the end of the history.
    HistoryOn { group: GroupId },
    /// The history of a group after a position. The receiver holds the request for a while if it has no entry yet.
    History { group: GroupId, after: HistoryPosition },
    /// The rows of a range of a group, as they were at a position of its history, with the first `further` changes of the entry
    /// after it.
    HistoryRows { group: GroupId, range: KeyRange, at: HistoryPosition, further: u32 },
}

impl Request {
    /// Whether the receiver needs a step of its log to respond, so that a stalled log delays the response.
    pub(crate) fn needs_log(&self) -> bool {
        match self {
            Request::Commit { .. }
            | Request::Join { .. }
            | Request::CopyBegin { .. }
            | Request::LogPosition { .. }
            | Request::LogPositions { .. }
            | Request::GroupsWithRows { .. }
            | Request::ResetMembers { .. }
            | Request::SetSealNumber { .. }
            | Request::HistoryOn { .. } => true,
            Request::States { .. }
            | Request::HandOver { .. }
            | Request::SealNumber { .. }
            | Request::ConnectedServers
            | Request::Version
            | Request::OfferCopy { .. }
            | Request::CopyNext { .. }
            | Request::SplitPoints { .. }
            | Request::Stalled { .. }
            | Request::AwaitVersion { .. }
            | Request::Terms { .. }
            | Request::History { .. }
            | Request::HistoryRows { .. } => false,
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u8(FOR_CLUSTER);
        bytes.put_u8(VERSION);
        match self {
            Request::Commit { base, rows } => {
                bytes.put_u8(1);
                bytes.put_u64_le(*base);
                bytes.put_u32_le(rows.len() as u32);
                for (key, object) in rows {
                    put(&mut bytes, key.as_bytes());
                    match object {
                        Some(object) => put(&mut bytes, &row::encode(object)),
                        None => put(&mut bytes, &[]),
                    }
                }
            }
            Request::Join { server } => {
                bytes.put_u8(2);
                put(&mut bytes, &row::encode(server));
            }
            Request::CopyBegin { group } => put_numbers(&mut bytes, 3, [group.0]),
            Request::OfferCopy { group, start } => put_numbers(&mut bytes, 12, [group.0, start.0]),
            Request::States { groups } => put_groups(&mut bytes, 15, groups),
            Request::GroupsWithRows { groups } => put_groups(&mut bytes, 16, groups),
            Request::LogPositions { groups } => put_groups(&mut bytes, 18, groups),
            Request::Terms { groups } => put_groups(&mut bytes, 21, groups),
            Request::LogPosition { group } => put_numbers(&mut bytes, 7, [group.0]),
            Request::SealNumber { group } => put_numbers(&mut bytes, 17, [group.0]),
            Request::ResetMembers { group, members } => {
                bytes.put_u8(8);
                bytes.put_u64_le(group.0);
                put(&mut bytes, members);
            }
            Request::SplitPoints { group, parts } => put_numbers(&mut bytes, 13, [group.0, *parts]),
            Request::SetSealNumber { group, number } => put_numbers(&mut bytes, 14, [group.0, *number]),
            Request::Stalled { cause } => {
                bytes.put_u8(19);
                put_cause(&mut bytes, *cause);
            }
            Request::AwaitVersion { version } => put_numbers(&mut bytes, 20, [*version]),
            Request::Version => bytes.put_u8(9),
            Request::HistoryOn { group } => put_numbers(&mut bytes, 22, [group.0]),
            Request::History { group, after } => {
                put_numbers(&mut bytes, 23, [group.0]);
                bytes.put_slice(&after.encode());
            }
            Request::HistoryRows { group, range, at, further } => {
                put_numbers(&mut bytes, 24, [group.0]);
                bytes.put_slice(&at.encode());
                bytes.put_u32_le(*further);
                put_range(&mut bytes, range);
            }
            Request::ConnectedServers => bytes.put_u8(10),
            Request::HandOver { group, to } => put_numbers(&mut bytes, 5, [group.0, to.0]),
            Request::CopyNext { copy, after, copy_ranges } => {
                bytes.put_u8(4);
                bytes.put_u64_le(*copy);
                bytes.put_u8(u8::from(after.is_some()));
                put(&mut bytes, after.as_ref().map_or(&[], PrimaryKey::as_bytes));
                put_copy_ranges(&mut bytes, copy_ranges);
            }
        }
        bytes.freeze()
    }

    /// Reads what [`Request::encode`] wrote, without its first byte.
    pub(crate) fn decode(mut bytes: Bytes) -> Option<Request> {
        if bytes.read_u8()? != VERSION {
            return None;
        }
        let request = match bytes.read_u8()? {
            1 => {
                let base = bytes.read_u64()?;
                let count = bytes.read_u32()?;
                let mut rows = Vec::new();
                for _ in 0..count {
                    let key = PrimaryKey(take(&mut bytes)?);
                    let stored = take(&mut bytes)?;
                    let object = if stored.is_empty() { None } else { Some(row::decode(stored).ok()?) };
                    rows.push((key, object));
                }
                Request::Commit { base, rows }
            }
            2 => Request::Join { server: row::decode(take(&mut bytes)?).ok()? },
            3 => Request::CopyBegin { group: GroupId(bytes.read_u64()?) },
            4 => {
                let copy = bytes.read_u64()?;
                let has_after = bytes.read_u8()? == 1;
                let after = Some(PrimaryKey(take(&mut bytes)?)).filter(|_| has_after);
                Request::CopyNext { copy, after, copy_ranges: take_copy_ranges(&mut bytes)? }
            }
            7 => Request::LogPosition { group: GroupId(bytes.read_u64()?) },
            8 => Request::ResetMembers { group: GroupId(bytes.read_u64()?), members: take(&mut bytes)? },
            9 => Request::Version,
            10 => Request::ConnectedServers,
            13 => Request::SplitPoints { group: GroupId(bytes.read_u64()?), parts: bytes.read_u64()? },
            14 => Request::SetSealNumber { group: GroupId(bytes.read_u64()?), number: bytes.read_u64()? },
            12 => {
                let (group, start) = (bytes.read_u64()?, bytes.read_u64()?);
                Request::OfferCopy { group: GroupId(group), start: Lsn(start) }
            }
            15 => Request::States { groups: take_groups(&mut bytes)? },
            17 => Request::SealNumber { group: GroupId(bytes.read_u64()?) },
            16 => Request::GroupsWithRows { groups: take_groups(&mut bytes)? },
            18 => Request::LogPositions { groups: take_groups(&mut bytes)? },
            5 => Request::HandOver { group: GroupId(bytes.read_u64()?), to: PeerId(bytes.read_u64()?) },
            19 => Request::Stalled { cause: take_cause(&mut bytes)? },
            20 => Request::AwaitVersion { version: bytes.read_u64()? },
            21 => Request::Terms { groups: take_groups(&mut bytes)? },
            22 => Request::HistoryOn { group: GroupId(bytes.read_u64()?) },
            23 => Request::History { group: GroupId(bytes.read_u64()?), after: take_position(&mut bytes)? },
            24 => {
                let (group, at) = (GroupId(bytes.read_u64()?), take_position(&mut bytes)?);
                let further = bytes.read_u32()?;
                Request::HistoryRows { group, range: take_range(&mut bytes)?, at, further }
            }
            _ => return None,
        };
        bytes.is_empty().then_some(request)
    }
}

fn take_position(bytes: &mut Bytes) -> Option<HistoryPosition> {
    let position = bytes.read_bytes(HistoryPosition::BYTES)?;
    Some(HistoryPosition::decode(position[..].try_into().ok()?))
}

fn put_groups(bytes: &mut BytesMut, kind: u8, groups: &[GroupId]) {
    bytes.put_u8(kind);
    bytes.put_u32_le(groups.len() as u32);
    groups.iter().for_each(|group| bytes.put_u64_le(group.0));
}

fn take_groups(bytes: &mut Bytes) -> Option<Vec<GroupId>> {
    let count = bytes.read_u32()?;
    (0..count).map(|_| bytes.read_u64().map(GroupId)).collect()
}

fn put_numbers<const N: usize>(bytes: &mut BytesMut, kind: u8, numbers: [u64; N]) {
    bytes.put_u8(kind);
    numbers.into_iter().for_each(|number| bytes.put_u64_le(number));
}

#[cfg(test)]
mod tests {
    use super::*;
    use datum::Text;

    fn requests() -> Vec<Request> {
        let object: Object = [(Text::from_static("a"), 1.into())].into_iter().collect();
        let key = |text: &'static str| PrimaryKey(Bytes::from_static(text.as_bytes()));
        vec![
            Request::Commit { base: 7, rows: vec![(key("x"), Some(object.clone())), (key("y"), None)] },
            Request::Join { server: object },
            Request::CopyBegin { group: GroupId(3) },
            Request::CopyNext { copy: 9, after: Some(key("k")), copy_ranges: Vec::new() },
            Request::CopyNext {
                copy: 9,
                after: None,
                copy_ranges: vec![CopyRange { last: key("l"), rows: 1, bytes: 4, digest: [5; 32] }],
            },
            Request::HandOver { group: GroupId(3), to: PeerId(4) },
            Request::States { groups: vec![GroupId(3), GroupId(4)] },
            Request::States { groups: Vec::new() },
            Request::GroupsWithRows { groups: vec![GroupId(3), GroupId(4)] },
            Request::LogPosition { group: GroupId(3) },
            Request::LogPositions { groups: vec![GroupId(3), GroupId(4)] },
            Request::SealNumber { group: GroupId(3) },
            Request::ResetMembers { group: GroupId(3), members: Bytes::from_static(b"m") },
            Request::Version,
            Request::ConnectedServers,
            Request::OfferCopy { group: GroupId(3), start: Lsn(9) },
            Request::SplitPoints { group: GroupId(3), parts: 4 },
            Request::SetSealNumber { group: GroupId(3), number: 5 },
            Request::Stalled { cause: None },
            Request::Stalled { cause: Some(StallCause::Slow) },
            Request::Stalled { cause: Some(StallCause::Stopped) },
            Request::AwaitVersion { version: 6 },
            Request::Terms { groups: vec![GroupId(3), GroupId(4)] },
            Request::HistoryOn { group: GroupId(3) },
            Request::History { group: GroupId(3), after: HistoryPosition { lsn: Lsn(4), incarnation: 5 } },
            Request::HistoryRows {
                group: GroupId(3),
                range: KeyRange::one(key("k")),
                at: HistoryPosition { lsn: Lsn(4), incarnation: 5 },
                further: 6,
            },
        ]
    }

    #[test]
    fn requests_round_trip_and_truncated_ones_are_refused() {
        for request in requests() {
            let bytes = request.encode();
            assert_eq!(Request::decode(bytes.slice(1..)), Some(request.clone()));
            let ends_with_copy_ranges = matches!(&request, Request::CopyNext { .. });
            for len in 1..bytes.len() {
                let truncated = Request::decode(bytes.slice(1..len));
                assert!(truncated.is_none() || ends_with_copy_ranges && truncated != Some(request.clone()));
            }
        }
    }
}
