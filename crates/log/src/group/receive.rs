//! Messages from the other replicas of a group, and the responses that consensus does not produce.
//!
//! An append from the leader takes this way through a follower: `receive_raft` sets the payloads of its entries aside and
//! passes the message to consensus, which decides which of the entries are new here. `Group::save` pushes these to the next
//! append of the log file, each with its payload, and keeps the confirmation to the leader until that append is durable. For
//! soft entries the leader does not wait that long: once they are appended, a *received* message tells it so (`following`).

use bytes::Bytes;
use raft::StateRole;
use raft::eraftpb::{Message as RaftMessage, MessageType};

use super::Group;
use super::quiescence::Quiescence;
use crate::error::LogError;
use crate::member::{MemberChange, PeerId};
use crate::message::{Content, Payload};
use crate::record::EntryKind;
use crate::step::{Effects, Step};
use crate::store::Store;

/// A heartbeat from a leader, before its commit position was adjusted.
struct Heartbeat {
    leader: PeerId,
    term: u64,
    /// The commit position that the leader knows to be in the local log.
    commit: u64,
}

impl Group {
    /// Handles a message from another replica.
    pub fn receive<S: Store>(
        &mut self,
        from: PeerId,
        body: &Bytes,
        step: &mut Step<'_, S>,
    ) -> Result<(), LogError> {
        // Until a quorum has the members durably, messages of a removed replica count like any other: replicas that do
        // not know of its removal can even elect it.
        let is_removed = self.consensus.members().removed.contains(&from);
        if is_removed && self.consensus.is_leader() && self.membership.is_durable_on_quorum(&self.consensus) {
            self.consensus.send(from.0, &Content::Removed, step.effects);
            return Ok(());
        }
        let Some(content) = Content::decode(body) else {
            tracing::warn!(group = self.consensus.id.0, from = from.0, "ignored a malformed message");
            return Ok(());
        };
        if Quiescence::is_woken_by(&content) {
            self.quiescence.wake(&mut self.consensus);
        }
        let leads_in = |term: u64| self.consensus.is_leader_in(term);
        match content {
            Content::Consensus { message, payloads, soft } => {
                self.receive_raft(from, message, payloads, soft, step)?;
            }
            Content::Received { term, index }
                if leads_in(term) && index <= self.consensus.outline().last() =>
            {
                self.replication.note_received(from.0, index);
            }
            Content::NeedsRows { term } if leads_in(term) => {
                self.replication.note_invalid_rows(from.0, self.ticks);
                self.report_snapshot_needed(from.0, step.effects);
            }
            Content::Removed => self.membership.removed |= self.consensus.members().contains(from),
            Content::Quiesce { term, index } => self.accept_quiesce(from, term, index, step.effects),
            Content::Quiesced { term, index }
                if leads_in(term) && index == self.consensus.outline().last() && self.may_quiesce() =>
            {
                self.quiescence.note_accepted(&self.consensus, from);
            }
            Content::Recovering { term, index } if leads_in(term) => {
                self.replication.note_recovering(&mut self.consensus, from.0, index);
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a message is a response to a heartbeat of this leader, in its term.
    pub fn is_confirmed_by(&self, body: &Bytes) -> bool {
        let is_response = |message: &RaftMessage| {
            message.get_msg_type() == MessageType::MsgHeartbeatResponse
                && message.term == self.consensus.term()
        };
        self.consensus.is_leader()
            && matches!(Content::decode(body), Some(Content::Consensus { message, .. }) if is_response(&message))
    }

    /// Whether this leader has nothing to do, and every member has everything.
    pub(super) fn may_quiesce(&self) -> bool {
        let (raft, last) = (self.consensus.raft(), self.consensus.outline().last());
        self.leadership.leads(&self.consensus).is_some()
            && self.proposals.is_idle()
            && self.entries.are_applied()
            && self.proposals.are_certain()
            && !self.is_unsynced()
            && self.reads.is_empty()
            && self.log_bases.is_empty()
            && raft.lead_transferee.is_none()
            && self.consensus.committed() == last
            && raft
                .prs()
                .iter()
                .all(|(_, progress)| progress.matched == last && progress.committed_index >= last)
    }

    /// Passes a message of consensus on to consensus, and saves the changed state. The payloads of an append are not part of
    /// Raft's entries: `received` holds them until `save_entry` takes the payloads of new entries. `soft` is the leader's
    /// soft position.
    ///
    /// Ignores a message that consensus cannot handle, or that this replica must not obey while it recovers.
    fn receive_raft<S: Store>(
        &mut self,
        from: PeerId,
        mut message: RaftMessage,
        payloads: Vec<Payload>,
        soft: u64,
        step: &mut Step<'_, S>,
    ) -> Result<(), LogError> {
        (message.from, message.to) = (from.0, self.consensus.own);
        let verified = self.following.verified_in(self.consensus.term(), self.entries.written);
        self.recovery.check_heartbeat(&self.consensus, verified, &mut message);
        self.stand_in.note_vote_request(&message, &self.consensus, self.ticks);
        let (kind, term, commit) = (message.get_msg_type(), message.term, message.commit);
        let may_stand = self.recovery.may_stand(&self.consensus, &self.membership);
        if !self.is_acceptable(&message, &payloads) || (kind == MessageType::MsgTimeoutNow && !may_stand) {
            return Ok(());
        }
        let indices = message.entries.iter().map(|entry| entry.index);
        self.received = indices.zip(payloads).collect();
        // A message that consensus rejects counts as lost.
        drop(self.consensus.node.step(message));
        let raft = self.consensus.raft();
        let is_from_leader = raft.term == term && raft.leader_id == from.0 && from.0 != self.consensus.own;
        if is_from_leader && matches!(kind, MessageType::MsgAppend | MessageType::MsgHeartbeat) {
            self.following.note_leader_soft(term, soft);
            if self.recovery.rows_invalid() && kind == MessageType::MsgAppend {
                // Sent before the confirmation of the append: a replica with the log and without rows is not ready.
                self.consensus.send(from.0, &Content::NeedsRows { term }, step.effects);
            }
        }
        self.save(step)?;
        self.received.clear();
        if is_from_leader && kind == MessageType::MsgHeartbeat {
            self.respond_to_heartbeat(&Heartbeat { leader: from, term, commit }, step.effects);
        }
        Ok(())
    }

    /// Sends the leader the information that the heartbeat response of consensus lacks.
    fn respond_to_heartbeat(&self, heartbeat: &Heartbeat, effects: &mut Effects) {
        let Heartbeat { leader, term, commit } = *heartbeat;
        self.recovery.send_recovering(&self.consensus, leader.0, term, effects);
        if self.recovery.rows_invalid() {
            self.consensus.send(leader.0, &Content::NeedsRows { term }, effects);
        }
        let here = self.consensus.durable();
        if here > commit && !self.is_unsynced() {
            // A heartbeat has the commit position, limited to the entries that the leader knows to be here. So the leader
            // does not know of all entries here: there was a copy of the rows, or an election. Its log equals the local one up
            // to the commit position, but it may no longer have the entries to find that out by probing.
            let mut message = RaftMessage { term, index: here, commit: here, ..RaftMessage::default() };
            message.set_msg_type(MessageType::MsgAppendResponse);
            self.membership.withhold(&self.consensus, &mut message);
            let content = Content::Consensus { message, payloads: Vec::new(), soft: 0 };
            self.consensus.send(leader.0, &content, effects);
        }
    }

    /// The leader asks to quiesce: accepted if nothing is missing here, and nothing waits for time to pass.
    fn accept_quiesce(&mut self, leader: PeerId, term: u64, index: u64, effects: &mut Effects) {
        let raft = self.consensus.raft();
        let follows = raft.term == term && raft.leader_id == leader.0 && raft.state == StateRole::Follower;
        let has_all = self.consensus.committed() == index
            && self.consensus.outline().last() == index
            && self.entries.applied == index;
        let waits = self.is_unsynced() || !self.proposals.are_certain();
        if follows && has_all && !waits && !self.recovery.rows_invalid() {
            self.quiescence.quiesce();
            self.consensus.send(leader.0, &Content::Quiesced { term, index }, effects);
        }
    }

    /// Whether consensus can handle the message. A message that no working replica would send is refused, because
    /// consensus would panic on it.
    fn is_acceptable(&self, message: &RaftMessage, payloads: &[Payload]) -> bool {
        let outline = self.consensus.outline();
        match message.get_msg_type() {
            MessageType::MsgAppend => {
                let committed = self.consensus.committed();
                let base = outline.term_at(committed).unwrap_or(0);
                let behind = message.index < committed;
                let mut term = message.log_term;
                let terms_grow = message.entries.iter().all(|entry| {
                    let grows = entry.term >= term && entry.term <= message.term;
                    term = entry.term;
                    grows
                });
                let is_whole = |payload: &Payload| {
                    payload.0 != EntryKind::Members || MemberChange::decode(&payload.1).is_some()
                };
                (behind || message.log_term >= base) && terms_grow && payloads.iter().all(is_whole)
            }
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                !self.recovery.must_refuse(message)
            }
            MessageType::MsgAppendResponse => {
                message.reject || message.index <= self.consensus.raft().raft_log.last_index()
            }
            _ => true,
        }
    }
}
