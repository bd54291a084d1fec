//! A replica that has lost what it had acknowledged: an older copy of its node's files was put back.
//!
//! It finds out when its leader counts on more than the log has: only the replica itself could have said that it had so
//! much. It says so, and the leader sends what is missing. Until it has all of that durably it does not stand, and
//! votes only for those who have at least as much: for others, too, its word counts as if it had been kept. Nothing
//! can be done about votes that it gives before it hears its leader: docs/reference/operating.md, "Backups".

use raft::eraftpb::{Message as RaftMessage, MessageType};

use super::Group;
use crate::member::PeerId;
use crate::message::Content;
use crate::turn::Effects;

/// What a leader counts on: everything up to a position, in a log that ended in that leader's term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Promise {
    term: u64,
    index: u64,
}

impl Group {
    /// Looks whether the writer of a heartbeat counts on more than there is. What the message says to be committed is
    /// taken only as far as it is known that the log here is the leader's: where it ends, it may be another's.
    pub(super) fn notice_loss(&mut self, message: &mut RaftMessage) {
        let raft = &self.node.raft;
        if message.get_msg_type() != MessageType::MsgHeartbeat || message.term < raft.term {
            return;
        }
        let last = raft.raft_log.last_index();
        if message.commit > last {
            let promise = Promise { term: message.term, index: message.commit };
            if self.lost.is_none() {
                let (group, commit) = (self.id.0, message.commit);
                tracing::warn!(
                    group,
                    last,
                    commit,
                    "a replica has lost what it had acknowledged, as if an older copy of the data directory had been put \
                     back; it gets that again from its leader"
                );
            }
            self.lost = self.lost.max(Some(promise));
        }
        if self.lost.is_some() {
            let is_verified = self.node.raft.term == message.term;
            let verified = if is_verified { self.verified_here() } else { 0 };
            message.commit = message.commit.min(verified.max(self.committed()));
        }
    }

    /// Whether the replica has lost something and may not say yes to this candidate: it has less than was promised.
    pub(super) fn is_owed_more(&self, ballot: &RaftMessage) -> bool {
        let has = Promise { term: ballot.log_term, index: ballot.index };
        self.lost.is_some_and(|promised| has < promised)
    }

    /// Tells the leader of `term` where the log ends, if that counts on more.
    pub(super) fn confess(&self, leader: PeerId, term: u64, effects: &mut Effects) {
        if self.lost.is_some() {
            let index = self.node.store().last();
            self.send(leader.0, &Content::Lost { term, index }, effects);
        }
    }

    /// What these answers say is durable now: whether that is all that was lost.
    pub(super) fn regain(&mut self, answers: &[RaftMessage]) {
        let is_yes =
            |answer: &&RaftMessage| answer.get_msg_type() == MessageType::MsgAppendResponse && !answer.reject;
        for answer in answers.iter().filter(is_yes) {
            let (term, index) = (answer.term, answer.index);
            if self.lost.take_if(|lost| term >= lost.term && index >= lost.index).is_some() {
                tracing::info!(group = self.id.0, index, "the replica has again what it had lost");
            }
        }
    }

    /// A follower has lost what came after `index`: it is asked anew what it has, and nothing of what it confirmed
    /// counts any more.
    pub(super) fn lost_by(&mut self, follower: PeerId, index: u64) {
        let last = self.node.store().last();
        let Some(progress) = self.node.raft.mut_prs().get_mut(follower.0) else { return };
        if progress.matched <= index {
            return;
        }
        progress.become_probe();
        progress.matched = 0;
        progress.next_idx = index.min(last) + 1;
        progress.committed_index = 0;
        self.fellows.remove(&follower.0);
    }
}
