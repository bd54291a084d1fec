//! A replica with the log and without rows, which leads where nobody else can be elected, until one with rows can.
//!
//! Rows become void where a later leader replaced what the engine held, or a disk lost it from the log. The log is as
//! good as any then, for consensus. If the replicas with rows lack entries that those without have acknowledged, they ask for
//! votes, and get none. So one without rows stands. It never takes office: it brings the logs of the others up to its own,
//! and hands over to the first that has all of it and rows.
//!
//! Not where nobody with rows has asked: whoever is away may have applied what the log here lacks, and would lose its
//! rows, perhaps the last, to the entries that are put in place of that.

use raft::StateRole;
use raft::eraftpb::{Message as RaftMessage, MessageType};

use super::{ELECTION_TICKS, Group};

/// So long those with rows are given to elect one of themselves, in ticks, each time a replica without could stand; and
/// so long it counts that one of them has asked. They ask at least every other election timeout.
const UNLED_TICKS: u64 = 3 * ELECTION_TICKS as u64;

/// Since when a replica without rows could stand, and when one with rows was heard of that nobody elects; in ticks.
#[derive(Default)]
pub(super) struct Unled {
    since: Option<u64>,
    asked: Option<u64>,
}

impl Group {
    /// Notes whether the replica would stand now if its rows were good, since nobody leads.
    pub(super) fn note_unled(&mut self, stands: bool) {
        if stands {
            self.unled.since.get_or_insert(self.ticks);
        } else if self.node.raft.election_elapsed < ELECTION_TICKS {
            // A leader is heard of, or somebody was voted for.
            self.unled = Unled::default();
        }
    }

    /// Notes that somebody asks for a vote whose log is the beginning of the one here: nothing of it would be replaced.
    ///
    /// Others without rows ask in the same words. They do only after they were asked, so one with rows is there.
    pub(super) fn note_asked(&mut self, message: &RaftMessage) {
        let is_ballot =
            matches!(message.get_msg_type(), MessageType::MsgRequestPreVote | MessageType::MsgRequestVote);
        if is_ballot && self.node.store().term_at(message.index) == Some(message.log_term) {
            self.unled.asked = Some(self.ticks);
        }
    }

    /// Whether the replica stands although its rows are void. One who votes alone has nobody to hand over to, and nobody
    /// asks one who does not vote.
    pub(super) fn stands_without_rows(&self) -> bool {
        let is_time = self.unled.since.is_some_and(|since| self.ticks >= since + UNLED_TICKS);
        let is_asked = self.unled.asked.is_some_and(|asked| self.ticks <= asked + UNLED_TICKS);
        self.void && is_time && is_asked && !self.is_alone() && self.log_is_whole()
    }

    /// A leader without rows hands over to a replica that has them, if one has all of the log.
    pub(super) fn hand_over_without_rows(&mut self) {
        let raft = &self.node.raft;
        if !self.void || raft.state != StateRole::Leader || raft.lead_transferee.is_some() {
            return;
        }
        let last = raft.raft_log.last_index();
        let has_all = |peer: u64| {
            raft.prs().get(peer).is_some_and(|progress| progress.recent_active && progress.matched == last)
        };
        let mut others = self.members().voters.iter().map(|peer| peer.0).filter(|peer| *peer != self.own);
        if let Some(next) = others.find(|peer| has_all(*peer) && !self.lacks_rows(*peer)) {
            tracing::info!(
                group = self.id.0,
                to = next,
                "a leader without rows hands over to one that has them"
            );
            self.node.transfer_leader(next);
        }
    }
}
