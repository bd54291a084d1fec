//! The role of a replica: when it leads, when it stands for election, and which role was last reported.

use io::Random;
use raft::StateRole;

use super::ELECTION_TICKS;
use super::consensus::Consensus;
use crate::lsn::{Acks, Term};
use crate::member::{PeerId, Role};

/// Proposers of a deposed leader's entries wait at most this many ticks for the outcome.
const DEPOSED_WAIT_TICKS: u64 = 50;

/// Term and state of consensus.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct RaftState {
    pub term: u64,
    pub state: StateRole,
}

/// A change of the state of consensus.
pub(super) struct StateChange {
    pub before: RaftState,
    pub now: RaftState,
}

/// State of a replica as a leader or candidate.
pub(super) struct Leadership {
    /// The role that was last reported.
    role: Role,
    /// The state that was last seen.
    seen: RaftState,
    /// The first entry of this leader's term.
    first_index: u64,
    /// How many replicas acknowledge an entry while this one leads.
    pub acks: Acks,
    /// Ticks without a leader before this replica stands for election.
    election_ticks: usize,
    /// The tick at which this replica stopped leading, while proposers of its entries wait.
    deposed_at: Option<u64>,
}

impl Leadership {
    /// The state of a replica that was opened in `term`.
    pub fn new(term: u64) -> Leadership {
        Leadership {
            role: Role::Follower { term: Term(term), leader: None },
            seen: RaftState { term, state: StateRole::Follower },
            first_index: 0,
            acks: Acks::Majority,
            election_ticks: ELECTION_TICKS,
            deposed_at: None,
        }
    }

    /// The role that was last reported.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The term in which this replica takes proposals, if it does.
    pub fn leads(&self, consensus: &Consensus) -> Option<Term> {
        match self.role {
            Role::Leader { term } if consensus.is_leader_in(term.0) => Some(term),
            _ => None,
        }
    }

    /// The role, if it has changed since the last report. A leader is reported as such once everything of earlier
    /// terms is applied and its rows are valid.
    pub fn take_changed_role(
        &mut self,
        consensus: &Consensus,
        applied: u64,
        rows_invalid: bool,
    ) -> Option<Role> {
        let term = Term(consensus.term());
        let is_caught_up = applied >= self.first_index
            && (consensus.is_single_voter() || consensus.committed() >= self.first_index);
        let role = match consensus.is_leader() {
            true if is_caught_up && !rows_invalid => Role::Leader { term },
            true => Role::Follower { term, leader: None },
            false => Role::Follower { term, leader: consensus.leader() },
        };
        (role != self.role).then(|| {
            self.role = role;
            role
        })
    }

    /// The change of the state of consensus since the last call, if there is one.
    pub fn take_state_change(&mut self, consensus: &Consensus) -> Option<StateChange> {
        let now = RaftState { term: consensus.term(), state: consensus.raft().state };
        let before = std::mem::replace(&mut self.seen, now);
        (before != now).then_some(StateChange { before, now })
    }

    /// This replica was elected, and its term's entries begin at `first_index`.
    pub fn note_elected(&mut self, first_index: u64, proposals_are_certain: bool) {
        self.first_index = first_index;
        if proposals_are_certain {
            self.deposed_at = None;
        }
    }

    /// This replica has stopped leading.
    pub fn note_deposed(&mut self, ticks: u64) {
        self.deposed_at = Some(ticks);
    }

    /// Whether the proposers of a deposed leader's entries have waited long enough; true only once.
    pub fn take_deposed_timeout(&mut self, ticks: u64) -> bool {
        self.deposed_at.take_if(|at| ticks >= *at + DEPOSED_WAIT_TICKS).is_some()
    }

    /// Draws when this replica stands for election if it receives nothing from a leader. The random source is the
    /// injected one and not that of the Raft library, so that a simulation can repeat it.
    pub fn draw_election_timeout(&mut self, consensus: &mut Consensus, random: &dyn Random) {
        let more = random.next_u64() % ELECTION_TICKS as u64;
        self.election_ticks = ELECTION_TICKS + more as usize;
        self.apply_election_timeout(consensus);
    }

    /// Sets the timeout that was drawn last, which the Raft library may have replaced.
    pub fn apply_election_timeout(&self, consensus: &mut Consensus) {
        consensus.node.raft.set_randomized_election_timeout(self.election_ticks);
    }

    /// Whether the next tick would begin an election.
    pub fn is_election_due(&self, consensus: &Consensus) -> bool {
        !consensus.is_leader() && consensus.raft().election_elapsed + 1 >= self.election_ticks
    }
}

/// The voter with most of the log, other than this replica. Voters without valid rows are ignored.
pub(super) fn best_follower(consensus: &Consensus, lacks_rows: impl Fn(u64) -> bool) -> Option<PeerId> {
    let progress = |peer: &u64| {
        consensus.raft().prs().get(*peer).map_or((false, 0), |it| (it.recent_active, it.matched))
    };
    let others = consensus.other_voters().filter(|peer| !lacks_rows(*peer));
    others.max_by_key(|peer| (progress(peer), *peer)).map(PeerId)
}
