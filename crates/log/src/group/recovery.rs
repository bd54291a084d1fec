//! A replica that has lost rows, or log entries that it had acknowledged.
//!
//! *Invalid rows*: a later leader replaced entries that the engine had applied, or the disk lost them from the log, or
//! the replica has just joined. Nothing is applied until a copy of the rows is restored.
//!
//! *Lost entries*: an older copy of the node's files was restored. The replica detects this when the commit position of a
//! heartbeat is past the end of its log, since only the replica itself can have confirmed that much. It informs the
//! leader, which sends the missing entries. Until they are durable, the replica does not stand for election, and votes
//! only for candidates that have at least as much, as if it had kept the entries. Votes that it gives before it receives
//! that heartbeat cannot be prevented: docs/reference/operating.md, "Backups".

use raft::eraftpb::{Message as RaftMessage, MessageType};

use super::consensus::Consensus;
use super::membership::Membership;
use crate::message::Content;
use crate::step::Effects;

/// A position that this replica has confirmed, in a log that ended in `term`. Ordered by term, then position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Promise {
    term: u64,
    index: u64,
}

/// Data that a replica must get back before it takes part in everything.
#[derive(Default)]
pub(super) struct Recovery {
    rows_invalid: bool,
    /// Whether the owner knows that the rows are invalid.
    invalid_reported: bool,
    /// Entries up to here were acknowledged and are lost.
    lost: Option<Promise>,
}

impl Recovery {
    /// The state of a replica that was just opened.
    pub fn new(rows_invalid: bool) -> Recovery {
        Recovery { rows_invalid, ..Recovery::default() }
    }

    /// Whether the rows are invalid until a copy is restored.
    pub fn rows_invalid(&self) -> bool {
        self.rows_invalid
    }

    /// The rows are invalid from now on.
    pub fn invalidate_rows(&mut self) {
        self.rows_invalid = true;
    }

    /// Whether the rows are invalid and the owner does not know yet; from now on it does.
    pub fn take_invalid_report(&mut self) -> bool {
        self.rows_invalid && !std::mem::replace(&mut self.invalid_reported, true)
    }

    /// The owner begins to replace the rows, which are invalid until it has finished. Returns whether they were valid.
    pub fn begin_restore(&mut self) -> bool {
        self.invalid_reported = true;
        !std::mem::replace(&mut self.rows_invalid, true)
    }

    /// Whether this replica is a member, and its log has everything that it acknowledged, durably.
    pub fn log_is_whole(&self, consensus: &Consensus, membership: &Membership) -> bool {
        !membership.removed && self.lost.is_none() && consensus.log_is_persisted()
    }

    /// Whether this replica may be elected and take proposals: its rows are valid and its log is whole.
    pub fn may_stand(&self, consensus: &Consensus, membership: &Membership) -> bool {
        !self.rows_invalid && self.log_is_whole(consensus, membership)
    }

    /// Compares a heartbeat with the local log: if it counts on more entries than there are, some are lost. The commit
    /// position of the message is then limited to the part of the log that is verified to equal the leader's, since
    /// the end of the log may stem from another leader.
    pub fn check_heartbeat(&mut self, consensus: &Consensus, verified: u64, message: &mut RaftMessage) {
        if message.get_msg_type() != MessageType::MsgHeartbeat || message.term < consensus.term() {
            return;
        }
        let last = consensus.raft().raft_log.last_index();
        if message.commit > last {
            let promise = Promise { term: message.term, index: message.commit };
            if self.lost.is_none() {
                let (group, commit) = (consensus.id.0, message.commit);
                tracing::warn!(
                    group,
                    last,
                    commit,
                    "this replica has lost entries that it had acknowledged, as if an older copy of the data directory \
                     had been restored; it requests them from its leader"
                );
            }
            self.lost = self.lost.max(Some(promise));
        }
        if self.lost.is_some() {
            let verified = if consensus.term() == message.term { verified } else { 0 };
            message.commit = message.commit.min(verified.max(consensus.committed()));
        }
    }

    /// Whether the replica must refuse this candidate, which has less than the replica acknowledged and lost.
    pub fn must_refuse(&self, vote_request: &RaftMessage) -> bool {
        let has = Promise { term: vote_request.log_term, index: vote_request.index };
        self.lost.is_some_and(|lost| has < lost)
    }

    /// Tells the leader of `term` where the log ends, if entries are lost.
    pub fn send_recovering(&self, consensus: &Consensus, leader: u64, term: u64, effects: &mut Effects) {
        if self.lost.is_some() {
            let index = consensus.outline().last();
            consensus.send(leader, &Content::Recovering { term, index }, effects);
        }
    }

    /// The appends that these responses confirm are durable; that may be all that was lost.
    pub fn note_durable(&mut self, consensus: &Consensus, responses: &[RaftMessage]) {
        let is_success = |response: &&RaftMessage| {
            response.get_msg_type() == MessageType::MsgAppendResponse && !response.reject
        };
        for response in responses.iter().filter(is_success) {
            let (term, index) = (response.term, response.index);
            if self.lost.take_if(|lost| term >= lost.term && index >= lost.index).is_some() {
                tracing::info!(group = consensus.id.0, index, "this replica has recovered its lost entries");
            }
        }
    }
}
