//! The replicas of a group: their identities, how a group is created, and how its members change.

use std::fmt;

use bytes::Bytes;

use crate::lsn::{Lsn, Term};

/// One replica of one group. The id is drawn at random when the replica is created, and never used again: a replica that
/// is removed from a node and created there again has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

/// How a group is created on this node. Only used if the store does not have the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitialConfig {
    /// A group of one; its peer id is drawn here.
    Single,
    /// One of the first members. All of them are given the same voters.
    Bootstrap {
        /// The replica on this node, which is one of `voters`.
        own: PeerId,
        /// All first members.
        voters: Vec<PeerId>,
    },
    /// One of the first members, without the rows that the group begins with: it votes, and never leads until it has them
    /// by [`Log::finish_restore`](crate::Log::finish_restore).
    BootstrapEmpty {
        /// The replica on this node, which is one of `voters`.
        own: PeerId,
        /// All first members. Another one has the rows.
        voters: Vec<PeerId>,
    },
    /// A new replica of an existing group. Its rows come by [`Log::finish_restore`](crate::Log::finish_restore), and a
    /// leader adds it as a learner.
    Joining {
        /// The replica on this node.
        own: PeerId,
    },
}

/// A change of the members. Applied one at a time, each when it is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// Adds a replica that receives every entry and has no vote. No effect if it has a vote.
    AddLearner(PeerId),
    /// Gives a learner a vote. Should be done once the learner has caught up.
    Promote(PeerId),
    /// Removes a replica permanently. A leader to be removed hands over first, if it can.
    Remove(PeerId),
}

/// The members of a group after a position of its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The entry with the last change; zero for the first members.
    pub at: Lsn,
    /// Replicas with a vote.
    pub voters: Vec<PeerId>,
    /// Replicas that receive every entry and have no vote.
    pub learners: Vec<PeerId>,
    /// Replicas that were members and can never be again.
    pub removed: Vec<PeerId>,
}

/// The role of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It orders entries. Everything of earlier terms is applied here.
    Leader {
        /// Its term: no other replica ever leads in it.
        term: Term,
    },
    /// It follows a leader, or knows of none.
    Follower {
        /// The newest term it knows.
        term: Term,
        /// The leader of that term, if known.
        leader: Option<PeerId>,
    },
}

/// The state of another replica, as its leader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The replica.
    pub peer: PeerId,
    /// It has everything up to here durably.
    pub matched: Lsn,
    /// Whether it responded lately.
    pub active: bool,
    /// Whether it needs a copy of the rows: it said lately that its own are invalid, or the leader's log no longer has the
    /// entries that it lacks.
    pub needs_rows: bool,
}

/// The state of a group on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// The replica on this node.
    pub own: PeerId,
    pub role: Role,
    /// The position before the first entry in its log.
    pub start: Lsn,
    /// The last position in its log.
    pub last: Lsn,
    /// The term of the entry there.
    pub last_term: Term,
    /// The last position known to be durable on a quorum.
    pub committed: Lsn,
    /// The last position that is durable both on a quorum and here.
    pub durable: Lsn,
    /// The last position handed to the applier.
    pub applied: Lsn,
    /// Whether the rows are invalid until [`Log::finish_restore`](crate::Log::finish_restore).
    pub needs_rows: bool,
    /// The members it knows.
    pub members: Members,
    /// Whether this replica leads and a quorum has these members durably. From then on no election
    /// needs the vote of a removed replica, so removed replicas may be deleted.
    pub members_durable: bool,
    /// On the leader, the other replicas, by peer id.
    pub peers: Vec<PeerStatus>,
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl MemberChange {
    /// Its bytes in an entry: one for the kind, eight for the peer. docs/formats/log.md.
    pub(crate) fn encode(self) -> Bytes {
        let (kind, peer) = match self {
            MemberChange::AddLearner(peer) => (1_u8, peer),
            MemberChange::Promote(peer) => (2, peer),
            MemberChange::Remove(peer) => (3, peer),
        };
        [kind].into_iter().chain(peer.0.to_le_bytes()).collect()
    }

    /// Reads the bytes of [`MemberChange::encode`]; `None` for anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<MemberChange> {
        let (kind, peer) = bytes.split_first()?;
        let peer = PeerId(u64::from_le_bytes(peer.try_into().ok()?));
        match kind {
            1 => Some(MemberChange::AddLearner(peer)),
            2 => Some(MemberChange::Promote(peer)),
            3 => Some(MemberChange::Remove(peer)),
            _ => None,
        }
    }
}

impl Members {
    /// The members after `change`; `None` if that changes nothing.
    pub(crate) fn changed(&self, change: MemberChange) -> Option<Members> {
        let mut members = self.clone();
        let without = |peers: &mut Vec<PeerId>, peer| peers.retain(|other| *other != peer);
        match change {
            MemberChange::AddLearner(peer) => members.learners.push(peer),
            MemberChange::Promote(peer) => {
                without(&mut members.learners, peer);
                members.voters.push(peer);
            }
            MemberChange::Remove(peer) => {
                without(&mut members.learners, peer);
                without(&mut members.voters, peer);
                members.removed.push(peer);
            }
        }
        let changes = match change {
            MemberChange::AddLearner(peer) => !self.contains(peer),
            MemberChange::Promote(peer) => !self.voters.contains(&peer),
            MemberChange::Remove(peer) => self.contains(peer),
        };
        changes.then_some(members)
    }

    /// The first members of a group.
    pub fn first(voters: Vec<PeerId>) -> Members {
        Members { voters, ..Members::default() }
    }

    /// Whether `peer` is a member, with or without a vote.
    pub fn contains(&self, peer: PeerId) -> bool {
        self.voters.contains(&peer) || self.learners.contains(&peer)
    }

    /// Their bytes: the position; one word with the number of voters and, in the upper 32 bits, of removed replicas; then
    /// voters, learners and removed replicas. docs/formats/log.md.
    pub fn encode(&self) -> Vec<u8> {
        let peers = self.voters.iter().chain(&self.learners).chain(&self.removed).map(|peer| peer.0);
        let counts = self.voters.len() as u64 | (self.removed.len() as u64) << 32;
        let words = [self.at.0, counts].into_iter().chain(peers);
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// Reads the bytes of [`Members::encode`]; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Members> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let [at, counts, peers @ ..] = &words[..] else { return None };
        let voters = usize::try_from(*counts & 0xffff_ffff).ok()?;
        let removed = usize::try_from(*counts >> 32).ok()?;
        let learners = peers.len().checked_sub(voters.checked_add(removed)?)?;
        let (voters, others) = peers.split_at(voters);
        let (learners, removed) = others.split_at(learners);
        let peers = |words: &[u64]| words.iter().map(|word| PeerId(*word)).collect();
        let (voters, learners, removed) = (peers(voters), peers(learners), peers(removed));
        rest.is_empty().then_some(Members { at: Lsn(*at), voters, learners, removed })
    }
}
