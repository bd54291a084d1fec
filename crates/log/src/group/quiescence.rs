//! Quiesced groups, which exchange no heartbeats.
//!
//! A leader that has had nothing to do for a while, and whose followers have everything, asks them to quiesce. Once all
//! have accepted, no clock ticks in the group on any node: the link between two nodes shows whether both are alive. A
//! proposal, an unreachable node, or any message that is not about quiescence wakes the group.

use std::collections::BTreeSet;

use raft::eraftpb::MessageType;

use super::consensus::Consensus;
use crate::member::PeerId;
use crate::message::Content;
use crate::step::Effects;

/// A leader asks its followers to quiesce after this many idle ticks.
const IDLE_TICKS: u32 = 20;

/// Whether a group is quiesced, and what leads to it.
#[derive(Default)]
pub(super) struct Quiescence {
    quiesced: bool,
    idle_ticks: u32,
    /// Followers that have accepted the last request to quiesce.
    accepted: BTreeSet<u64>,
    /// Voters whose nodes became unreachable since the group quiesced.
    unreachable: BTreeSet<PeerId>,
}

impl Quiescence {
    pub fn is_quiesced(&self) -> bool {
        self.quiesced
    }

    /// The replica is quiesced from now on.
    pub fn quiesce(&mut self) {
        self.quiesced = true;
    }

    /// Ends quiescence. The leader is given as long as after a heartbeat.
    pub fn wake(&mut self, consensus: &mut Consensus) {
        self.idle_ticks = 0;
        self.accepted.clear();
        self.unreachable.clear();
        if std::mem::take(&mut self.quiesced) {
            consensus.node.raft.election_elapsed = 0;
        }
    }

    /// The nodes of `peers` are unreachable. Wakes the group, and returns true, if its leader is one of them, or if this
    /// replica leads and no quorum of voters is left that is reachable. A leader with a quorum continues.
    pub fn note_unreachable(&mut self, consensus: &mut Consensus, peers: &BTreeSet<PeerId>) -> bool {
        if !self.quiesced {
            return false;
        }
        let voters = &consensus.members().voters;
        self.unreachable.extend(voters.iter().filter(|voter| peers.contains(voter)));
        let reachable = voters.len() - self.unreachable.len();
        let concerned = match consensus.is_leader() {
            true => reachable * 2 <= voters.len(),
            false => consensus.leader().is_some_and(|leader| peers.contains(&leader)),
        };
        if concerned {
            self.wake(consensus);
        }
        concerned
    }

    /// The nodes of `peers` are reachable again, and may have restarted: wakes the group if one is a member.
    pub fn note_reachable(&mut self, consensus: &mut Consensus, peers: &BTreeSet<PeerId>) -> bool {
        let members = consensus.members();
        let concerned = self.quiesced && peers.iter().any(|peer| members.contains(*peer));
        if concerned {
            self.wake(consensus);
        }
        concerned
    }

    /// Whether a message wakes the group: all do but those about quiescence, and late responses.
    pub fn is_woken_by(content: &Content) -> bool {
        let is_response =
            |kind| matches!(kind, MessageType::MsgHeartbeatResponse | MessageType::MsgAppendResponse);
        match content {
            Content::Quiesce { .. } | Content::Quiesced { .. } | Content::Received { .. } => false,
            Content::Consensus { message, .. } => !is_response(message.get_msg_type()),
            Content::NeedsRows { .. } | Content::Recovering { .. } | Content::Removed => true,
        }
    }

    /// Counts a tick in which the leader had work to do, or none; in the latter case, at intervals, asks the followers to
    /// quiesce.
    pub fn note_tick(&mut self, consensus: &Consensus, is_idle: bool, effects: &mut Effects) {
        if !is_idle {
            self.idle_ticks = 0;
            return;
        }
        self.idle_ticks += 1;
        if self.idle_ticks.is_multiple_of(IDLE_TICKS) {
            self.accepted.clear();
            let content = Content::Quiesce { term: consensus.term(), index: consensus.committed() };
            for peer in consensus.other_members() {
                consensus.send(peer, &content, effects);
            }
        }
    }

    /// A follower of an idle leader has accepted the request to quiesce. The leader quiesces when all have.
    pub fn note_accepted(&mut self, consensus: &Consensus, follower: PeerId) {
        self.accepted.insert(follower.0);
        if consensus.other_members().all(|peer| self.accepted.contains(&peer)) {
            self.quiesced = true;
        }
    }
}
