//! A replica with a complete log and without valid rows that leads for a while, because no other can be elected.
//!
//! Rows become invalid when a later leader replaced entries that the engine had applied, or a disk lost them. The log
//! is as good as any other for consensus. The replicas with rows may lack entries that those without rows have
//! acknowledged; they then ask for votes and get none. In that case one without rows stands for election. It never
//! takes proposals: it brings the other logs up to its own, and hands over to the first replica that has both the log
//! and rows.
//!
//! It only stands if a replica with rows has asked for a vote. A replica that is away may have applied entries that
//! are missing here; the entries that would replace them would invalidate its rows, which may be the last ones.

use raft::eraftpb::{Message as RaftMessage, MessageType};

use super::ELECTION_TICKS;
use super::consensus::Consensus;

/// Time for the replicas with rows to elect a leader among themselves, counted from the first time a replica without
/// rows could stand; also how long a vote request counts. They ask at least every other election timeout.
const NO_LEADER_TICKS: u64 = 3 * ELECTION_TICKS as u64;

/// Signs that no replica with rows can be elected, by tick.
#[derive(Default)]
pub(super) struct StandIn {
    /// When this replica could first stand.
    no_leader_since: Option<u64>,
    /// When another replica last asked for a vote with a log that is a prefix of the local one.
    vote_requested_at: Option<u64>,
}

impl StandIn {
    /// Notes whether the replica would stand now if its rows were valid, since there is no leader.
    pub fn note_leaderless(&mut self, would_stand: bool, consensus: &Consensus, ticks: u64) {
        if would_stand {
            self.no_leader_since.get_or_insert(ticks);
        } else if consensus.raft().election_elapsed < ELECTION_TICKS {
            // There is a leader, or this replica has voted.
            *self = StandIn::default();
        }
    }

    /// Notes a vote request from a replica whose log is a prefix of the local one: leading here would replace none of its
    /// entries.
    ///
    /// Other replicas without rows send the same request, but only after they have received one themselves, so there
    /// is a replica with rows in any case.
    pub fn note_vote_request(&mut self, message: &RaftMessage, consensus: &Consensus, ticks: u64) {
        let is_vote_request =
            matches!(message.get_msg_type(), MessageType::MsgRequestPreVote | MessageType::MsgRequestVote);
        if is_vote_request && consensus.outline().term_at(message.index) == Some(message.log_term) {
            self.vote_requested_at = Some(ticks);
        }
    }

    /// Whether a replica with a whole log and invalid rows should stand. A single voter has no other replica to hand
    /// over to, and a replica without a vote receives no vote requests.
    pub fn should_stand(&self, consensus: &Consensus, ticks: u64) -> bool {
        let is_time = self.no_leader_since.is_some_and(|since| ticks >= since + NO_LEADER_TICKS);
        let is_requested = self.vote_requested_at.is_some_and(|at| ticks <= at + NO_LEADER_TICKS);
        is_time && is_requested && !consensus.is_single_voter()
    }
}

/// The replica that a stand-in leader hands over to: one that answers and has the whole log, and rows.
pub(super) fn successor(consensus: &Consensus, lacks_rows: impl Fn(u64) -> bool) -> Option<u64> {
    let last = consensus.raft().raft_log.last_index();
    let has_log =
        |peer: u64| consensus.raft().prs().get(peer).is_some_and(|it| it.recent_active && it.matched == last);
    consensus.other_voters().find(|peer| has_log(*peer) && !lacks_rows(*peer))
}
