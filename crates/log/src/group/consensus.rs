//! Raft for one replica: the library's node, the replica's identity, and questions about its state.

use raft::{Config, ProgressState, Raft, RawNode, StateRole};

use super::ELECTION_TICKS;
use crate::contract::Message;
use crate::lsn::GroupId;
use crate::member::{Members, PeerId};
use crate::message::Content;
use crate::outline::Outline;
use crate::step::Effects;

/// Limit for entries as Raft sees them, which are a few bytes each.
const RAFT_MESSAGE_BYTES_MAX: u64 = 16 << 10;

/// The Raft node of a replica.
pub(super) struct Consensus {
    pub id: GroupId,
    /// The peer id of this replica.
    pub own: u64,
    pub node: RawNode<Outline>,
}

impl Consensus {
    /// A replica whose engine has applied everything up to `applied`.
    pub fn new(id: GroupId, own: u64, applied: u64, outline: Outline) -> raft::Result<Consensus> {
        let config = Config {
            id: own,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: 1,
            applied,
            max_size_per_msg: RAFT_MESSAGE_BYTES_MAX,
            check_quorum: true,
            pre_vote: true,
            batch_append: true,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        Ok(Consensus { id, own, node: RawNode::new(&config, outline, &logger)? })
    }

    /// The state of Raft.
    pub fn raft(&self) -> &Raft<Outline> {
        &self.node.raft
    }

    /// The outline of the log, as written so far.
    pub fn outline(&self) -> &Outline {
        self.node.store()
    }

    /// The current term.
    pub fn term(&self) -> u64 {
        self.raft().term
    }

    /// Whether this replica was elected in the current term; it may not take proposals yet.
    pub fn is_leader(&self) -> bool {
        self.raft().state == StateRole::Leader
    }

    /// Whether this replica was elected in `term`, and that is the current term.
    pub fn is_leader_in(&self, term: u64) -> bool {
        self.is_leader() && self.term() == term
    }

    /// The leader of the current term, if known.
    pub fn leader(&self) -> Option<PeerId> {
        Some(PeerId(self.raft().leader_id)).filter(|leader| *leader != PeerId(0))
    }

    /// The members in force.
    pub fn members(&self) -> &Members {
        &self.outline().members
    }

    /// The voters other than this replica.
    pub fn other_voters(&self) -> impl Iterator<Item = u64> {
        self.members().voters.iter().map(|peer| peer.0).filter(|peer| *peer != self.own)
    }

    /// All members other than this replica: voters, then learners.
    pub fn other_members(&self) -> impl Iterator<Item = u64> {
        let members = self.members();
        let all = members.voters.iter().chain(&members.learners).map(|peer| peer.0);
        all.filter(|peer| *peer != self.own)
    }

    /// Whether this replica is the only voter.
    pub fn is_single_voter(&self) -> bool {
        self.members().voters == [PeerId(self.own)]
    }

    /// Whether the group has no other replica, voting or not.
    pub fn is_single_replica(&self) -> bool {
        self.is_single_voter() && self.members().learners.is_empty()
    }

    /// The last position that is durable on a quorum.
    pub fn committed(&self) -> u64 {
        self.raft().raft_log.committed
    }

    /// The last position that is durable on this replica.
    pub fn persisted(&self) -> u64 {
        self.raft().raft_log.persisted
    }

    /// The last position that is durable on a quorum and on this replica.
    pub fn durable(&self) -> u64 {
        self.committed().min(self.persisted())
    }

    /// Whether every entry of the log is durable on this replica.
    pub fn log_is_persisted(&self) -> bool {
        self.persisted() == self.raft().raft_log.last_index()
    }

    /// The last position that `peer` has confirmed to this leader; zero if it is unknown.
    pub fn matched(&self, peer: u64) -> u64 {
        self.raft().prs().get(peer).map_or(0, |progress| progress.matched)
    }

    /// Whether `peer` is sent entries without waiting for each response.
    pub fn is_streaming_to(&self, peer: u64) -> bool {
        self.raft().prs().get(peer).is_some_and(|progress| progress.state == ProgressState::Replicate)
    }

    /// Sends `content` to another replica.
    pub fn send(&self, to: u64, content: &Content, effects: &mut Effects) {
        let (group, from, to) = (self.id, PeerId(self.own), PeerId(to));
        effects.messages.push(Message { group, from, to, body: content.encode() });
    }
}
