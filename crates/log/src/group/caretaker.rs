//! A replica with the log and without rows, which leads where nobody else can be elected, until one with rows can.
//!
//! Rows become void where a later leader replaced what the engine held, or a disk lost it from the log. The log is as
//! good as any then. If most replicas of a group are so, and the others lack entries that those have acknowledged,
//! nobody with rows is elected. So one without stands, when there was no leader for long. It never takes office: it
//! brings the logs of the others up to its own, and hands over to the first that has all of it and rows.

use raft::StateRole;

use super::{ELECTION_TICKS, Group};

/// So long those with rows are given to elect one of themselves, in ticks, each time a replica without could stand.
const UNLED_TICKS: u64 = 3 * ELECTION_TICKS as u64;

impl Group {
    /// Notes whether the replica would stand now if its rows were good, since nobody leads.
    pub(super) fn note_unled(&mut self, stands: bool) {
        if stands {
            self.unled_since.get_or_insert(self.ticks);
        } else if self.node.raft.election_elapsed < ELECTION_TICKS {
            // A leader is heard of, or somebody was voted for.
            self.unled_since = None;
        }
    }

    /// Whether the replica stands although its rows are void. One whose log is empty has not got yet what the group
    /// begins with, which is in nobody's log; one who votes alone has nobody to hand over to.
    pub(super) fn stands_without_rows(&self) -> bool {
        let is_time = || self.unled_since.is_some_and(|since| self.ticks >= since + UNLED_TICKS);
        self.void && is_time() && self.node.store().last() > 0 && !self.is_alone() && self.log_is_whole()
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
