//! What nodes ask each other about the cluster itself, as bytes: docs/formats/cluster-question.md.

use bytes::{BufMut, Bytes, BytesMut};
use datum::{Object, PrimaryKey, row};
use log::{GroupId, Lsn, Members, PeerId, Term};
use shard::Stretch;
use storage::{IndexBuild, IndexId};
use uuid::Uuid;

use crate::ServerId;
use crate::copy_piece::{put_stretches, take_stretches};
use crate::wire_field::{put, take, take_u8, take_u32, take_u64};

/// The first byte of a question: whose it is.
pub(crate) const FOR_CLUSTER: u8 = 0;
/// The same, for the questions of queries.
pub(crate) const FOR_QUERIES: u8 = 1;

const VERSION: u8 = 3;

/// A question about the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Question {
    /// To the leader of the catalog: write these rows if its version is `base`.
    Commit { base: u64, rows: Vec<(PrimaryKey, Option<Object>)> },
    /// Let this server in; the row says who it is.
    Join { server: Object },
    /// How are the replicas of these groups, of each of which the server may be the leader?
    States { groups: Vec<GroupId> },
    /// To the leader of a group: let this replica lead.
    HandOver { group: GroupId, to: PeerId },
    /// To the leader of a group: keep a copy of its rows for me.
    CopyBegin { group: GroupId },
    /// How far does the log of your replica of a group reach?
    End { group: GroupId },
    /// Of which of these groups do you have a replica with its rows, durably?
    Begun { groups: Vec<GroupId> },
    /// Which mark has your replica of a group, as far as it was applied (`shard::SealMark`)?
    Mark { group: GroupId },
    /// Make these (`log::Members`) the members of a group, by force.
    ResetMembers { group: GroupId, members: Bytes },
    /// Which servers are you connected to?
    Sees,
    /// To the leader of the catalog: which version is it?
    Version,
    /// To a replica's server, of its leader: the log no longer has what it needs, so let it ask for a
    /// copy.
    CopyWanted { group: GroupId },
    /// The rows of a copy after `after`, for one who has those of `stretches` there.
    CopyNext { copy: u64, after: Option<PrimaryKey>, stretches: Vec<Stretch> },
    /// To the leader of a group: where may its range be cut into so many parts?
    Cuts { group: GroupId, parts: u64 },
    /// To the leader of a group: seal it, or open it again (`shard::SealMark`).
    SetMark { group: GroupId, mark: u64 },
}

/// What came of [`Question::Commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommitAnswer {
    Done,
    Stale,
    NotLeader,
    Refused(String),
    Doubt(String),
}

/// What came of [`Question::Join`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JoinAnswer {
    /// The replica of the catalog on the new server.
    pub(crate) own: PeerId,
    /// Where the others are.
    pub(crate) places: Vec<(PeerId, ServerId)>,
}

/// What came of [`Question::CopyBegin`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyAnswer {
    pub(crate) copy: u64,
    pub(crate) rows: u64,
    pub(crate) origin: Bytes,
    pub(crate) progress: Bytes,
    pub(crate) builds: Vec<(IndexId, IndexBuild)>,
}

impl Question {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u8(FOR_CLUSTER);
        bytes.put_u8(VERSION);
        match self {
            Question::Commit { base, rows } => {
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
            Question::Join { server } => {
                bytes.put_u8(2);
                put(&mut bytes, &row::encode(server));
            }
            Question::CopyBegin { group } => put_words(&mut bytes, 3, [group.0]),
            Question::CopyWanted { group } => put_words(&mut bytes, 12, [group.0]),
            Question::States { groups } => put_groups(&mut bytes, 15, groups),
            Question::Begun { groups } => put_groups(&mut bytes, 16, groups),
            Question::End { group } => put_words(&mut bytes, 7, [group.0]),
            Question::Mark { group } => put_words(&mut bytes, 17, [group.0]),
            Question::ResetMembers { group, members } => {
                bytes.put_u8(8);
                bytes.put_u64_le(group.0);
                put(&mut bytes, members);
            }
            Question::Cuts { group, parts } => put_words(&mut bytes, 13, [group.0, *parts]),
            Question::SetMark { group, mark } => put_words(&mut bytes, 14, [group.0, *mark]),
            Question::Version => bytes.put_u8(9),
            Question::Sees => bytes.put_u8(10),
            Question::HandOver { group, to } => put_words(&mut bytes, 5, [group.0, to.0]),
            Question::CopyNext { copy, after, stretches } => {
                bytes.put_u8(4);
                bytes.put_u64_le(*copy);
                bytes.put_u8(u8::from(after.is_some()));
                put(&mut bytes, after.as_ref().map_or(&[], PrimaryKey::as_bytes));
                put_stretches(&mut bytes, stretches);
            }
        }
        bytes.freeze()
    }

    /// Reads what [`Question::encode`] wrote, without its first byte.
    pub(crate) fn decode(mut bytes: Bytes) -> Option<Question> {
        if take_u8(&mut bytes)? != VERSION {
            return None;
        }
        let question = match take_u8(&mut bytes)? {
            1 => {
                let base = take_u64(&mut bytes)?;
                let count = take_u32(&mut bytes)?;
                let mut rows = Vec::new();
                for _ in 0..count {
                    let key = PrimaryKey(take(&mut bytes)?);
                    let stored = take(&mut bytes)?;
                    let object = if stored.is_empty() { None } else { Some(row::decode(stored).ok()?) };
                    rows.push((key, object));
                }
                Question::Commit { base, rows }
            }
            2 => Question::Join { server: row::decode(take(&mut bytes)?).ok()? },
            3 => Question::CopyBegin { group: GroupId(take_u64(&mut bytes)?) },
            4 => {
                let copy = take_u64(&mut bytes)?;
                let has_after = take_u8(&mut bytes)? == 1;
                let after = Some(PrimaryKey(take(&mut bytes)?)).filter(|_| has_after);
                Question::CopyNext { copy, after, stretches: take_stretches(&mut bytes)? }
            }
            7 => Question::End { group: GroupId(take_u64(&mut bytes)?) },
            8 => Question::ResetMembers { group: GroupId(take_u64(&mut bytes)?), members: take(&mut bytes)? },
            9 => Question::Version,
            10 => Question::Sees,
            13 => Question::Cuts { group: GroupId(take_u64(&mut bytes)?), parts: take_u64(&mut bytes)? },
            14 => Question::SetMark { group: GroupId(take_u64(&mut bytes)?), mark: take_u64(&mut bytes)? },
            12 => Question::CopyWanted { group: GroupId(take_u64(&mut bytes)?) },
            15 => Question::States { groups: take_groups(&mut bytes)? },
            17 => Question::Mark { group: GroupId(take_u64(&mut bytes)?) },
            16 => Question::Begun { groups: take_groups(&mut bytes)? },
            5 => Question::HandOver {
                group: GroupId(take_u64(&mut bytes)?),
                to: PeerId(take_u64(&mut bytes)?),
            },
            _ => return None,
        };
        bytes.is_empty().then_some(question)
    }
}

impl CommitAnswer {
    pub(crate) fn encode(&self) -> Bytes {
        let (kind, why) = match self {
            CommitAnswer::Done => (0, ""),
            CommitAnswer::Stale => (1, ""),
            CommitAnswer::NotLeader => (2, ""),
            CommitAnswer::Refused(why) => (3, why.as_str()),
            CommitAnswer::Doubt(why) => (4, why.as_str()),
        };
        [&[kind], why.as_bytes()].concat().into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<CommitAnswer> {
        let (kind, why) = bytes.split_first()?;
        let why = String::from_utf8_lossy(why).into_owned();
        Some(match kind {
            0 => CommitAnswer::Done,
            1 => CommitAnswer::Stale,
            2 => CommitAnswer::NotLeader,
            3 => CommitAnswer::Refused(why),
            4 => CommitAnswer::Doubt(why),
            _ => return None,
        })
    }
}

impl JoinAnswer {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u64_le(self.own.0);
        for (peer, server) in &self.places {
            bytes.put_u64_le(peer.0);
            bytes.put_slice(server.0.as_bytes());
        }
        bytes.freeze()
    }

    pub(crate) fn decode(mut bytes: Bytes) -> Option<JoinAnswer> {
        let own = PeerId(take_u64(&mut bytes)?);
        let mut places = Vec::new();
        while !bytes.is_empty() {
            let peer = PeerId(take_u64(&mut bytes)?);
            if bytes.len() < 16 {
                return None;
            }
            let server = Uuid::from_slice(&bytes.split_to(16)).ok()?;
            places.push((peer, ServerId(server)));
        }
        Some(JoinAnswer { own, places })
    }
}

impl CopyAnswer {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u64_le(self.copy);
        bytes.put_u64_le(self.rows);
        put(&mut bytes, &self.origin);
        put(&mut bytes, &self.progress);
        put_builds(&mut bytes, &self.builds);
        bytes.freeze()
    }

    pub(crate) fn decode(mut bytes: Bytes) -> Option<CopyAnswer> {
        let (copy, rows) = (take_u64(&mut bytes)?, take_u64(&mut bytes)?);
        let (origin, progress) = (take(&mut bytes)?, take(&mut bytes)?);
        Some(CopyAnswer { copy, rows, origin, progress, builds: take_builds(bytes)? })
    }
}

fn put_builds(bytes: &mut BytesMut, builds: &[(IndexId, IndexBuild)]) {
    for (index, build) in builds {
        bytes.put_u32_le(index.0);
        put(bytes, &build.encode());
    }
}

/// All that is left.
fn take_builds(mut bytes: Bytes) -> Option<Vec<(IndexId, IndexBuild)>> {
    let mut builds = Vec::new();
    while !bytes.is_empty() {
        let index = IndexId(take_u32(&mut bytes)?);
        builds.push((index, IndexBuild::decode(&take(&mut bytes)?)?));
    }
    Some(builds)
}

/// What came of [`Question::States`] for one group: who leads, when it is another; else how it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StateAnswer {
    Elsewhere(Option<ServerId>),
    Led(GroupState),
}

/// What the leader of a group knows of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupState {
    /// The replicas that are ready.
    pub(crate) ready: Vec<PeerId>,
    /// How many rows there are.
    pub(crate) rows: u64,
    /// How far each index is built.
    pub(crate) builds: Vec<(IndexId, IndexBuild)>,
}

impl StateAnswer {
    fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        match self {
            StateAnswer::Elsewhere(leader) => {
                bytes.put_u8(0);
                bytes.put_slice(
                    leader.map(|leader| leader.0.into_bytes()).as_ref().map_or(&[][..], |id| &id[..]),
                );
            }
            StateAnswer::Led(GroupState { ready, rows, builds }) => {
                bytes.put_u8(1);
                bytes.put_u32_le(ready.len() as u32);
                ready.iter().for_each(|peer| bytes.put_u64_le(peer.0));
                bytes.put_u64_le(*rows);
                put_builds(&mut bytes, builds);
            }
        }
        bytes.freeze()
    }

    fn decode(mut bytes: Bytes) -> Option<StateAnswer> {
        match take_u8(&mut bytes)? {
            0 if bytes.is_empty() => Some(StateAnswer::Elsewhere(None)),
            0 => Some(StateAnswer::Elsewhere(Some(ServerId(Uuid::from_slice(&bytes).ok()?)))),
            1 => {
                let mut ready = Vec::new();
                for _ in 0..take_u32(&mut bytes)? {
                    ready.push(PeerId(take_u64(&mut bytes)?));
                }
                let (rows, builds) = (take_u64(&mut bytes)?, take_builds(bytes)?);
                Some(StateAnswer::Led(GroupState { ready, rows, builds }))
            }
            _ => None,
        }
    }
}

/// What came of [`Question::States`], one for each group.
pub(crate) fn encode_states(states: &[StateAnswer]) -> Bytes {
    let mut bytes = BytesMut::new();
    states.iter().for_each(|state| put(&mut bytes, &state.encode()));
    bytes.freeze()
}

/// Reads what [`encode_states`] wrote.
pub(crate) fn decode_states(mut bytes: Bytes) -> Option<Vec<StateAnswer>> {
    let mut states = Vec::new();
    while !bytes.is_empty() {
        states.push(StateAnswer::decode(take(&mut bytes)?)?);
    }
    Some(states)
}

/// What came of [`Question::End`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndAnswer {
    pub(crate) own: PeerId,
    pub(crate) last_term: Term,
    pub(crate) last: Lsn,
    /// The members, as far as this replica knows.
    pub(crate) members: Members,
}

impl EndAnswer {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = [self.own.0, self.last_term.0, self.last.0].map(u64::to_le_bytes).concat();
        bytes.extend_from_slice(&self.members.encode());
        bytes.into()
    }

    pub(crate) fn decode(mut bytes: Bytes) -> Option<EndAnswer> {
        let mut word = || take_u64(&mut bytes);
        let (own, last_term, last) = (PeerId(word()?), Term(word()?), Lsn(word()?));
        Some(EndAnswer { own, last_term, last, members: Members::decode(&bytes)? })
    }
}

/// What came of [`Question::Version`], or of [`Question::Mark`].
pub(crate) fn decode_word(mut bytes: Bytes) -> Option<u64> {
    take_u64(&mut bytes)
}

/// What came of [`Question::Sees`].
pub(crate) fn encode_servers(servers: &[ServerId]) -> Bytes {
    servers.iter().flat_map(|server| *server.0.as_bytes()).collect()
}

/// Reads what [`encode_servers`] wrote.
pub(crate) fn decode_servers(bytes: &Bytes) -> Option<Vec<ServerId>> {
    let (ids, rest) = bytes.as_chunks::<16>();
    rest.is_empty().then(|| ids.iter().map(|id| ServerId(Uuid::from_bytes(*id))).collect())
}

/// What came of [`Question::Begun`].
pub(crate) fn encode_begun(groups: &[GroupId]) -> Bytes {
    groups.iter().flat_map(|group| group.0.to_le_bytes()).collect()
}

/// Reads what [`encode_begun`] wrote.
pub(crate) fn decode_begun(bytes: &Bytes) -> Option<Vec<GroupId>> {
    let (groups, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| groups.iter().map(|group| GroupId(u64::from_le_bytes(*group))).collect())
}

fn put_groups(bytes: &mut BytesMut, kind: u8, groups: &[GroupId]) {
    bytes.put_u8(kind);
    bytes.put_u32_le(groups.len() as u32);
    groups.iter().for_each(|group| bytes.put_u64_le(group.0));
}

fn take_groups(bytes: &mut Bytes) -> Option<Vec<GroupId>> {
    let count = take_u32(bytes)?;
    (0..count).map(|_| take_u64(bytes).map(GroupId)).collect()
}

fn put_words<const N: usize>(bytes: &mut BytesMut, kind: u8, words: [u64; N]) {
    bytes.put_u8(kind);
    words.into_iter().for_each(|word| bytes.put_u64_le(word));
}

#[cfg(test)]
mod tests {
    use super::*;
    use datum::Text;

    fn questions() -> Vec<Question> {
        let object: Object = [(Text::from_static("a"), 1.into())].into_iter().collect();
        let key = |text: &'static str| PrimaryKey(Bytes::from_static(text.as_bytes()));
        vec![
            Question::Commit { base: 7, rows: vec![(key("x"), Some(object.clone())), (key("y"), None)] },
            Question::Join { server: object },
            Question::CopyBegin { group: GroupId(3) },
            Question::CopyNext { copy: 9, after: Some(key("k")), stretches: Vec::new() },
            Question::CopyNext {
                copy: 9,
                after: None,
                stretches: vec![Stretch { last: key("l"), rows: 1, bytes: 4, digest: [5; 32] }],
            },
            Question::HandOver { group: GroupId(3), to: PeerId(4) },
            Question::States { groups: vec![GroupId(3), GroupId(4)] },
            Question::States { groups: Vec::new() },
            Question::Begun { groups: vec![GroupId(3), GroupId(4)] },
            Question::End { group: GroupId(3) },
            Question::Mark { group: GroupId(3) },
            Question::ResetMembers { group: GroupId(3), members: Bytes::from_static(b"m") },
            Question::Version,
            Question::Sees,
            Question::CopyWanted { group: GroupId(3) },
            Question::Cuts { group: GroupId(3), parts: 4 },
            Question::SetMark { group: GroupId(3), mark: 5 },
        ]
    }

    #[test]
    fn a_question_reads_back_and_no_part_of_one_does() {
        for question in questions() {
            let bytes = question.encode();
            assert_eq!(Question::decode(bytes.slice(1..)), Some(question.clone()));
            let ends_with_stretches = matches!(&question, Question::CopyNext { .. });
            for len in 1..bytes.len() {
                let cut = Question::decode(bytes.slice(1..len));
                assert!(cut.is_none() || ends_with_stretches && cut != Some(question.clone()));
            }
        }
    }

    #[test]
    fn answers_read_back() {
        let join = JoinAnswer { own: PeerId(5), places: vec![(PeerId(7), ServerId(Uuid::from_u128(9)))] };
        assert_eq!(JoinAnswer::decode(join.encode()), Some(join));
        let (origin, progress) = (Bytes::from_static(b"o"), Bytes::from_static(b"p"));
        let builds = vec![(IndexId(1), IndexBuild::Ready)];
        let copy = CopyAnswer { copy: 1, rows: 2, origin, progress, builds };
        assert_eq!(CopyAnswer::decode(copy.encode()), Some(copy));
        let states = vec![
            StateAnswer::Elsewhere(None),
            StateAnswer::Elsewhere(Some(ServerId(Uuid::from_u128(9)))),
            StateAnswer::Led(GroupState::default()),
            StateAnswer::Led(GroupState {
                ready: vec![PeerId(3), PeerId(4)],
                rows: 5,
                builds: vec![(IndexId(1), IndexBuild::Ready)],
            }),
        ];
        assert_eq!(decode_states(encode_states(&states)), Some(states));
        let servers = vec![ServerId(Uuid::from_u128(9)), ServerId(Uuid::from_u128(10))];
        assert_eq!(decode_servers(&encode_servers(&servers)), Some(servers));
        let begun = vec![GroupId(3), GroupId(u64::MAX)];
        assert_eq!(decode_begun(&encode_begun(&begun)), Some(begun.clone()));
        assert_eq!(decode_begun(&encode_begun(&begun).slice(1..)), None);
        let members = Members::first(vec![PeerId(3), PeerId(6)]);
        let end = EndAnswer { own: PeerId(3), last_term: Term(4), last: Lsn(5), members };
        assert_eq!(EndAnswer::decode(end.encode()), Some(end));
        let doubt = CommitAnswer::Doubt("why".to_owned());
        assert_eq!(CommitAnswer::decode(&doubt.encode()), Some(doubt));
    }
}
