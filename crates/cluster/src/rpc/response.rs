//! Responses to requests about the cluster, and their bytes: `docs/formats/cluster-request.md`.

use bytes::{BufMut, Bytes, BytesMut};
use io::ReadFields as _;
use log::{GroupId, Lsn, Members, PeerId, StallCause, Term};
use storage::{IndexBuild, IndexId};
use uuid::Uuid;

use crate::ServerId;
use crate::rpc::field::{put, put_cause, take, take_cause};
#[cfg(doc)]
use crate::rpc::request::Request;

/// The response to [`Request::Stalled`]: the health of the responder's log.
pub(crate) fn encode_cause(cause: Option<StallCause>) -> Bytes {
    let mut bytes = BytesMut::new();
    put_cause(&mut bytes, cause);
    bytes.freeze()
}

/// Reads bytes written by [`encode_cause`]; older servers send none, which counts as healthy.
pub(crate) fn decode_cause(mut bytes: Bytes) -> Option<Option<StallCause>> {
    if bytes.is_empty() { Some(None) } else { take_cause(&mut bytes) }
}

/// The response to [`Request::Commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommitResponse {
    Done,
    Stale,
    NotLeader,
    Refused(String),
    InDoubt(String),
}

/// The response to [`Request::Join`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JoinResponse {
    /// The id of the new server's replica of the catalog.
    pub(crate) own: PeerId,
    /// The servers of the other replicas of the catalog.
    pub(crate) places: Vec<(PeerId, ServerId)>,
}

/// The response to [`Request::CopyBegin`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyResponse {
    pub(crate) copy: u64,
    pub(crate) rows: u64,
    pub(crate) origin: Bytes,
    pub(crate) progress: Bytes,
    pub(crate) builds: Vec<(IndexId, IndexBuild)>,
}

impl CommitResponse {
    pub(crate) fn encode(&self) -> Bytes {
        let (kind, why) = match self {
            CommitResponse::Done => (0, ""),
            CommitResponse::Stale => (1, ""),
            CommitResponse::NotLeader => (2, ""),
            CommitResponse::Refused(why) => (3, why.as_str()),
            CommitResponse::InDoubt(why) => (4, why.as_str()),
        };
        [&[kind], why.as_bytes()].concat().into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<CommitResponse> {
        let (kind, why) = bytes.split_first()?;
        let why = String::from_utf8_lossy(why).into_owned();
        Some(match kind {
            0 => CommitResponse::Done,
            1 => CommitResponse::Stale,
            2 => CommitResponse::NotLeader,
            3 => CommitResponse::Refused(why),
            4 => CommitResponse::InDoubt(why),
            _ => return None,
        })
    }
}

impl JoinResponse {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u64_le(self.own.0);
        for (peer, server) in &self.places {
            bytes.put_u64_le(peer.0);
            bytes.put_slice(server.0.as_bytes());
        }
        bytes.freeze()
    }

    pub(crate) fn decode(mut bytes: Bytes) -> Option<JoinResponse> {
        let own = PeerId(bytes.read_u64()?);
        let mut places = Vec::new();
        while !bytes.is_empty() {
            let peer = PeerId(bytes.read_u64()?);
            if bytes.len() < 16 {
                return None;
            }
            let server = Uuid::from_slice(&bytes.split_to(16)).ok()?;
            places.push((peer, ServerId(server)));
        }
        Some(JoinResponse { own, places })
    }
}

impl CopyResponse {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u64_le(self.copy);
        bytes.put_u64_le(self.rows);
        put(&mut bytes, &self.origin);
        put(&mut bytes, &self.progress);
        put_builds(&mut bytes, &self.builds);
        bytes.freeze()
    }

    pub(crate) fn decode(mut bytes: Bytes) -> Option<CopyResponse> {
        let (copy, rows) = (bytes.read_u64()?, bytes.read_u64()?);
        let (origin, progress) = (take(&mut bytes)?, take(&mut bytes)?);
        Some(CopyResponse { copy, rows, origin, progress, builds: take_builds(bytes)? })
    }
}

fn put_builds(bytes: &mut BytesMut, builds: &[(IndexId, IndexBuild)]) {
    for (index, build) in builds {
        bytes.put_u32_le(index.0);
        put(bytes, &build.encode());
    }
}

/// Reads index builds to the end of the bytes.
fn take_builds(mut bytes: Bytes) -> Option<Vec<(IndexId, IndexBuild)>> {
    let mut builds = Vec::new();
    while !bytes.is_empty() {
        let index = IndexId(bytes.read_u32()?);
        builds.push((index, IndexBuild::decode(&take(&mut bytes)?)?));
    }
    Some(builds)
}

/// The response to [`Request::States`] for one group: its state if the responder leads it, else the leader that the
/// responder knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StateResponse {
    NotLeader(Option<ServerId>),
    Led(GroupState),
}

/// The response to [`Request::SetSealNumber`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SealResponse {
    /// The members of the group at that time.
    pub(crate) members: Members,
    /// The members that respond, have the seal entry durably in their logs, and have the rows before it. They only have to
    /// learn that the entry is committed.
    pub(crate) holders: Vec<PeerId>,
}

impl SealResponse {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        put(&mut bytes, &self.members.encode());
        self.holders.iter().for_each(|peer| bytes.put_u64_le(peer.0));
        bytes.freeze()
    }

    pub(crate) fn decode(mut bytes: Bytes) -> Option<SealResponse> {
        let members = Members::decode(&take(&mut bytes)?)?;
        let (holders, rest) = bytes.as_chunks::<8>();
        let holders = holders.iter().map(|peer| PeerId(u64::from_le_bytes(*peer))).collect();
        rest.is_empty().then_some(SealResponse { members, holders })
    }
}

/// The state of a group according to its leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupState {
    /// The replicas that are ready.
    pub(crate) ready: Vec<PeerId>,
    /// Whether writes succeed: false if they need the leader's disk, and that is full or hangs.
    pub(crate) takes_writes: bool,
    pub(crate) rows: u64,
    /// The progress of each index build.
    pub(crate) builds: Vec<(IndexId, IndexBuild)>,
}

impl StateResponse {
    fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        match self {
            StateResponse::NotLeader(leader) => {
                bytes.put_u8(0);
                bytes.put_slice(
                    leader.map(|leader| leader.0.into_bytes()).as_ref().map_or(&[][..], |id| &id[..]),
                );
            }
            StateResponse::Led(GroupState { ready, takes_writes, rows, builds }) => {
                // Older servers know only the value 1.
                bytes.put_u8(if *takes_writes { 1 } else { 2 });
                bytes.put_u32_le(ready.len() as u32);
                ready.iter().for_each(|peer| bytes.put_u64_le(peer.0));
                bytes.put_u64_le(*rows);
                put_builds(&mut bytes, builds);
            }
        }
        bytes.freeze()
    }

    fn decode(mut bytes: Bytes) -> Option<StateResponse> {
        match bytes.read_u8()? {
            0 if bytes.is_empty() => Some(StateResponse::NotLeader(None)),
            0 => Some(StateResponse::NotLeader(Some(ServerId(Uuid::from_slice(&bytes).ok()?)))),
            kind @ (1 | 2) => {
                let takes_writes = kind == 1;
                let mut ready = Vec::new();
                for _ in 0..bytes.read_u32()? {
                    ready.push(PeerId(bytes.read_u64()?));
                }
                let (rows, builds) = (bytes.read_u64()?, take_builds(bytes)?);
                Some(StateResponse::Led(GroupState { ready, takes_writes, rows, builds }))
            }
            _ => None,
        }
    }
}

/// The response to [`Request::States`]: one state for each group.
pub(crate) fn encode_states(states: &[StateResponse]) -> Bytes {
    let mut bytes = BytesMut::new();
    states.iter().for_each(|state| put(&mut bytes, &state.encode()));
    bytes.freeze()
}

/// Reads bytes written by [`encode_states`].
pub(crate) fn decode_states(mut bytes: Bytes) -> Option<Vec<StateResponse>> {
    let mut states = Vec::new();
    while !bytes.is_empty() {
        states.push(StateResponse::decode(take(&mut bytes)?)?);
    }
    Some(states)
}

/// The response to [`Request::LogPosition`]: the last entry of the replica's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogPositionResponse {
    pub(crate) own: PeerId,
    pub(crate) last_term: Term,
    pub(crate) last: Lsn,
    /// The members that this replica knows.
    pub(crate) members: Members,
}

impl LogPositionResponse {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = [self.own.0, self.last_term.0, self.last.0].map(u64::to_le_bytes).concat();
        bytes.extend_from_slice(&self.members.encode());
        bytes.into()
    }

    pub(crate) fn decode(mut bytes: Bytes) -> Option<LogPositionResponse> {
        let mut number = || bytes.read_u64();
        let (own, last_term, last) = (PeerId(number()?), Term(number()?), Lsn(number()?));
        Some(LogPositionResponse { own, last_term, last, members: Members::decode(&bytes)? })
    }
}

/// The response to [`Request::LogPositions`]: `None` for a group without a replica, or whose rows are void.
pub(crate) fn encode_log_positions(positions: &[Option<LogPositionResponse>]) -> Bytes {
    let mut bytes = BytesMut::new();
    for position in positions {
        put(&mut bytes, &position.as_ref().map(LogPositionResponse::encode).unwrap_or_default());
    }
    bytes.freeze()
}

/// Reads bytes written by [`encode_log_positions`].
pub(crate) fn decode_log_positions(mut bytes: Bytes) -> Option<Vec<Option<LogPositionResponse>>> {
    let mut positions = Vec::new();
    while !bytes.is_empty() {
        let position = take(&mut bytes)?;
        let is_none = position.is_empty();
        positions.push(if is_none { None } else { Some(LogPositionResponse::decode(position)?) });
    }
    Some(positions)
}

/// The response to [`Request::Version`] or [`Request::SealNumber`].
pub(crate) fn decode_number(mut bytes: Bytes) -> Option<u64> {
    bytes.read_u64()
}

/// The response to [`Request::ConnectedServers`].
pub(crate) fn encode_servers(servers: &[ServerId]) -> Bytes {
    servers.iter().flat_map(|server| *server.0.as_bytes()).collect()
}

/// Reads bytes written by [`encode_servers`].
pub(crate) fn decode_servers(bytes: &Bytes) -> Option<Vec<ServerId>> {
    let (ids, rest) = bytes.as_chunks::<16>();
    rest.is_empty().then(|| ids.iter().map(|id| ServerId(Uuid::from_bytes(*id))).collect())
}

/// The response to [`Request::GroupsWithRows`].
pub(crate) fn encode_groups(groups: &[GroupId]) -> Bytes {
    groups.iter().flat_map(|group| group.0.to_le_bytes()).collect()
}

/// Reads bytes written by [`encode_groups`].
pub(crate) fn decode_groups(bytes: &Bytes) -> Option<Vec<GroupId>> {
    let (groups, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| groups.iter().map(|group| GroupId(u64::from_le_bytes(*group))).collect())
}

/// The response to [`Request::Terms`]: one term for each group; zero if none is known.
pub(crate) fn encode_terms(terms: &[Term]) -> Bytes {
    terms.iter().flat_map(|term| term.0.to_le_bytes()).collect()
}

/// Reads bytes written by [`encode_terms`].
pub(crate) fn decode_terms(bytes: &Bytes) -> Option<Vec<Term>> {
    let (terms, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| terms.iter().map(|term| Term(u64::from_le_bytes(*term))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_response_round_trips_and_truncated_ones_are_refused() {
        let members = Members { at: Lsn(3), voters: vec![PeerId(1), PeerId(2)], ..Members::default() };
        let response = SealResponse { members, holders: vec![PeerId(2)] };
        let bytes = response.encode();
        assert_eq!(SealResponse::decode(bytes.clone()), Some(response));
        for len in (0..bytes.len()).filter(|len| *len != bytes.len() - 8) {
            assert_eq!(SealResponse::decode(bytes.slice(..len)), None, "{len}");
        }
    }

    #[test]
    fn responses_round_trip() {
        let join = JoinResponse { own: PeerId(5), places: vec![(PeerId(7), ServerId(Uuid::from_u128(9)))] };
        assert_eq!(JoinResponse::decode(join.encode()), Some(join));
        let (origin, progress) = (Bytes::from_static(b"o"), Bytes::from_static(b"p"));
        let builds = vec![(IndexId(1), IndexBuild::Ready)];
        let copy = CopyResponse { copy: 1, rows: 2, origin, progress, builds };
        assert_eq!(CopyResponse::decode(copy.encode()), Some(copy));
        let states = vec![
            StateResponse::NotLeader(None),
            StateResponse::NotLeader(Some(ServerId(Uuid::from_u128(9)))),
            StateResponse::Led(GroupState::default()),
            StateResponse::Led(GroupState {
                ready: vec![PeerId(3), PeerId(4)],
                takes_writes: true,
                rows: 5,
                builds: vec![(IndexId(1), IndexBuild::Ready)],
            }),
        ];
        assert_eq!(decode_states(encode_states(&states)), Some(states));
        let servers = vec![ServerId(Uuid::from_u128(9)), ServerId(Uuid::from_u128(10))];
        assert_eq!(decode_servers(&encode_servers(&servers)), Some(servers));
        let groups = vec![GroupId(3), GroupId(u64::MAX)];
        assert_eq!(decode_groups(&encode_groups(&groups)), Some(groups.clone()));
        assert_eq!(decode_groups(&encode_groups(&groups).slice(1..)), None);
        let terms = vec![Term(0), Term(7)];
        assert_eq!(decode_terms(&encode_terms(&terms)), Some(terms.clone()));
        assert_eq!(decode_terms(&encode_terms(&terms).slice(1..)), None);
        let members = Members::first(vec![PeerId(3), PeerId(6)]);
        let position = LogPositionResponse { own: PeerId(3), last_term: Term(4), last: Lsn(5), members };
        assert_eq!(LogPositionResponse::decode(position.encode()), Some(position.clone()));
        let positions = vec![None, Some(position), None];
        let bytes = encode_log_positions(&positions);
        assert_eq!(decode_log_positions(bytes.clone()), Some(positions));
        assert_eq!(decode_log_positions(bytes.slice(..bytes.len() - 1)), None);
        let in_doubt = CommitResponse::InDoubt("why".to_owned());
        assert_eq!(CommitResponse::decode(&in_doubt.encode()), Some(in_doubt));
    }
}
