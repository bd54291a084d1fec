//! A follower's knowledge of its leader's log, and the *received* message, with which it reports soft entries that are
//! written. It reports hard entries after the `fsync`, with consensus's response (`persistence`).

use raft::StateRole;

use super::consensus::Consensus;
use crate::message::Content;
use crate::step::Effects;

/// A position that is only meaningful in one term.
#[derive(Clone, Copy, Default)]
struct TermPosition {
    term: u64,
    index: u64,
}

impl TermPosition {
    /// The position, if it is of `term`; zero otherwise.
    fn in_term(self, term: u64) -> u64 {
        if self.term == term { self.index } else { 0 }
    }
}

/// State of a follower.
#[derive(Default)]
pub(super) struct Following {
    /// The local log equals the leader's up to here.
    verified: TermPosition,
    /// The soft position that the leader last sent.
    leader_soft: TermPosition,
    /// Soft entries were appended, and not reported to the leader.
    owes_received: bool,
}

impl Following {
    /// The local log equals that of the leader of `term` up to `index`.
    pub fn verify(&mut self, term: u64, index: u64) {
        if self.verified.term <= term {
            self.verified = TermPosition { term, index: self.verified.in_term(term).max(index) };
        }
    }

    /// The last position that is appended here and equal to the log of the leader of `term`.
    pub fn verified_in(&self, term: u64, written: u64) -> u64 {
        self.verified.in_term(term).min(written)
    }

    /// The leader of `term` has sent its soft position.
    pub fn note_leader_soft(&mut self, term: u64, soft: u64) {
        self.leader_soft = TermPosition { term, index: soft.max(self.leader_soft.in_term(term)) };
    }

    /// The soft position sent by the leader of `term`, as far as the local log is known to equal the leader's.
    pub fn soft_in(&self, term: u64, written: u64) -> u64 {
        self.leader_soft.in_term(term).min(self.verified_in(term, written))
    }

    /// The term has changed: the soft position of the old leader no longer counts.
    pub fn forget_leader_soft(&mut self) {
        self.leader_soft = TermPosition::default();
    }

    /// A soft entry was ordered, whose proposer waits for appends.
    pub fn note_soft_entry(&mut self) {
        self.owes_received = true;
    }

    /// Reports to the leader how much of its log is appended here, if soft entries wait for that.
    pub fn send_received(
        &mut self,
        consensus: &Consensus,
        written: u64,
        term_is_durable: bool,
        effects: &mut Effects,
    ) {
        let raft = consensus.raft();
        let follows = raft.state == StateRole::Follower && raft.leader_id != 0;
        // A power loss could erase a term that is not durable, and another leader's entries could replace these.
        if !self.owes_received || !follows || !term_is_durable {
            return;
        }
        let (term, leader, index) = (raft.term, raft.leader_id, self.verified_in(raft.term, written));
        self.owes_received = false;
        if index > 0 {
            consensus.send(leader, &Content::Received { term, index }, effects);
        }
    }
}
