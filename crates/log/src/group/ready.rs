//! Carries out what consensus wants stored and sent, and passes on what may be applied.
//!
//! Consensus learns only of durable entries, so its commit position never goes back.

use raft::eraftpb::{Entry as RaftEntry, Message as RaftMessage, MessageType};
use raft::{Ready, StateRole};

use super::entries::ApplyLimits;
use super::leadership::StateChange;
use super::{Group, TAIL_BYTES_MAX};
use crate::contract::Entry;
use crate::error::{LogError, Refusal};
use crate::lsn::{Acks, Durability};
use crate::member::{MemberChange, PeerId};
use crate::message::{self, Content};
use crate::record::{EntryKind, Record};
use crate::step::{Answers, Effects, PendingEntry, Step};
use crate::store::Store;
use crate::tail::Held;

impl Group {
    /// Stores and sends what consensus wants stored and sent, until it wants nothing more.
    pub fn save<S: Store>(&mut self, step: &mut Step<'_, S>) -> Result<(), LogError> {
        loop {
            self.note_synced(step)?;
            if self.consensus.node.has_ready() {
                let ready = self.consensus.node.ready();
                self.save_ready(ready, step)?;
            } else if !self.apply_member_change(step)? {
                break;
            }
        }
        for peer in self.consensus.outline().take_snapshot_requests() {
            self.report_snapshot_needed(peer, step.effects);
        }
        Ok(())
    }

    /// The current append is written: the log holds the pushed records.
    pub fn appended(&mut self, effects: &mut Effects, synced: u64) {
        self.entries.written = self.consensus.outline().last();
        let term_is_durable = self.persistence.term_is_durable(synced);
        self.following.send_received(&self.consensus, self.entries.written, term_is_durable, effects);
    }

    /// Appends up to number `step.synced` are durable. Consensus may now commit; its new records go into the next append.
    pub fn synced<S: Store>(&mut self, step: &mut Step<'_, S>) -> Result<(), LogError> {
        let term_is_durable = self.persistence.term_is_durable(step.synced);
        self.following.send_received(&self.consensus, self.entries.written, term_is_durable, step.effects);
        self.save(step)
    }

    /// Invalidates the engine's rows durably, until a copy is restored.
    pub(super) fn discard_rows<S: Store>(&mut self, step: &mut Step<'_, S>) {
        #[cfg(any(test, feature = "mutants"))]
        if crate::mutant::is_active(crate::mutant::Mutant::KeepVoidRows) {
            self.entries.applied = self.entries.applied.min(self.consensus.outline().last());
            return;
        }
        self.recovery.invalidate_rows();
        step.store.push(&Record::Rows { group: self.consensus.id, invalid: true });
        step.effects.urgent = true;
    }

    /// Reports, at intervals, that `peer` needs a copy; not if this replica itself has no valid rows to copy.
    pub(super) fn report_snapshot_needed(&mut self, peer: u64, effects: &mut Effects) {
        if !self.recovery.rows_invalid() {
            self.replication.report_snapshot_needed(&self.consensus, peer, self.ticks, effects);
        }
    }

    /// Whether something appended is not durable yet.
    pub fn is_unsynced(&self) -> bool {
        !self.persistence.is_complete() || !self.membership.is_durable()
    }

    /// Moves entries that may be applied to `batch`, and the callbacks that are then due to `answers`.
    pub fn take_applicable(
        &mut self,
        store: &impl Store,
        synced: u64,
        batch: &mut Vec<Entry>,
        answers: &mut Answers,
    ) -> Result<(), LogError> {
        self.advance_soft(synced);
        if !self.recovery.rows_invalid() {
            let (limits, id) = (self.apply_limits(), self.consensus.id);
            self.entries.take_applicable(id, &limits, store, &mut self.membership, batch, answers)?;
        }
        let applied = self.entries.applied;
        self.proposals.answer_uncertain(&self.consensus, applied, answers);
        let reached = applied.min(self.consensus.durable());
        // Consensus waits only for membership changes, which take effect where they are committed.
        let passed = if self.recovery.rows_invalid() { self.consensus.durable() } else { reached };
        if passed > self.consensus.raft().raft_log.applied {
            self.consensus.node.advance_apply_to(passed);
        }
        self.proposals.answer_syncs(reached, answers);
        self.membership.answer(answers);
        self.reads.answer(applied, answers);
        self.log_bases.answer_committed(&self.consensus, &self.membership);
        let kept_bytes = if self.consensus.is_single_replica() { 0 } else { TAIL_BYTES_MAX };
        self.entries.tail.shrink(applied, kept_bytes);
        Ok(())
    }

    /// Moves the soft position to the last entry that a quorum has written, as far as this replica knows.
    fn advance_soft(&mut self, synced: u64) {
        let written = self.entries.written;
        #[cfg(any(test, feature = "mutants"))]
        if crate::mutant::is_active(crate::mutant::Mutant::SoftAlone) {
            self.entries.soft = written;
        }
        let reached = if self.consensus.is_single_voter() {
            written
        } else if self.consensus.is_leader() {
            self.replication.written_by_quorum(&self.consensus, written)
        } else if self.persistence.term_is_durable(synced) {
            self.following.soft_in(self.consensus.term(), written)
        } else {
            0
        };
        self.entries.soft = self.entries.soft.max(reached);
    }

    fn apply_limits(&self) -> ApplyLimits {
        let committed = self.consensus.committed();
        // Entries that need no other replica. All entries that this leader has ordered have its term.
        let (own_soft, own_hard) =
            match self.leadership.acks == Acks::One && self.leadership.leads(&self.consensus).is_some() {
                true => (self.entries.written, self.consensus.persisted()),
                false => (0, 0),
            };
        let soft = self.entries.soft.max(committed).max(own_soft);
        ApplyLimits { soft, hard: committed.max(own_hard), members: committed }
    }

    /// Pushes the commit position, unless the log has it: the applied position never passes it but for soft entries. After
    /// a restart a leader gives copies as far as it knows entries to be committed.
    pub fn push_commit<S: Store>(&mut self, store: &mut S) {
        let (group, commit) = (self.consensus.id, self.consensus.committed());
        let hard = &mut self.consensus.node.mut_store().hard;
        if commit <= hard.commit {
            return;
        }
        hard.commit = commit;
        let (term, vote) = (hard.term, hard.vote);
        #[cfg(any(test, feature = "mutants"))]
        let vote = if crate::mutant::is_active(crate::mutant::Mutant::ForgetVote) { 0 } else { vote };
        store.push(&Record::Vote { group, term, vote, commit });
    }

    /// Reports durable batches to consensus, and sends the messages that waited for them.
    fn note_synced<S: Store>(&mut self, step: &mut Step<'_, S>) -> Result<(), LogError> {
        while let Some(batch) = self.persistence.next_synced(step.synced) {
            self.consensus.node.on_persist_ready(batch.ready);
            self.recovery.note_durable(&self.consensus, &batch.messages);
            self.send_all(batch.messages, step)?;
        }
        if self.membership.note_synced(step.synced) && self.consensus.is_leader() {
            // Until the other replicas know the new members, a leader is elected by the votes of the old ones.
            self.consensus.node.raft.bcast_append();
        }
        Ok(())
    }

    fn save_ready<S: Store>(&mut self, mut ready: Ready, step: &mut Step<'_, S>) -> Result<(), LogError> {
        self.note_state_change(step);
        // A new commit position alone is not worth a record: the replica learns it again.
        if let Some(hard) = ready.hs().filter(|_| ready.must_sync()) {
            let stored = &self.consensus.outline().hard;
            if (hard.term, hard.vote) != (stored.term, stored.vote) {
                let (group, term, vote, commit) = (self.consensus.id, hard.term, hard.vote, hard.commit);
                if term != stored.term {
                    self.persistence.note_term(step.append);
                }
                #[cfg(any(test, feature = "mutants"))]
                let vote = if crate::mutant::is_active(crate::mutant::Mutant::ForgetVote) { 0 } else { vote };
                step.store.push(&Record::Vote { group, term, vote, commit });
                step.effects.urgent |= !self.consensus.is_single_replica();
                self.consensus.node.mut_store().hard = hard.clone();
            }
        }
        for entry in ready.take_entries() {
            self.save_entry(&entry, step);
        }
        for state in ready.take_read_states() {
            self.reads.confirm(&state);
        }
        // A batch without records is as durable as those before it.
        let append = if ready.must_sync() { step.append } else { self.persistence.last_append() };
        let (mut now, mut later) = (ready.take_messages(), ready.take_persisted_messages());
        if self.persistence.term_is_durable(step.synced) {
            // A heartbeat response promises nothing that is in the append. If it waited for a slow disk, it would be too
            // late for a leader that checks whether a quorum is alive.
            let is_heartbeat_response =
                |message: &mut RaftMessage| message.get_msg_type() == MessageType::MsgHeartbeatResponse;
            now.extend(later.extract_if(.., is_heartbeat_response));
        }
        for message in &later {
            if message.get_msg_type() == MessageType::MsgAppendResponse && !message.reject {
                self.following.verify(message.term, message.index);
            }
        }
        #[cfg(any(test, feature = "mutants"))]
        let append = if crate::mutant::is_active(crate::mutant::Mutant::AckBeforeFsync) { 0 } else { append };
        self.persistence.push(append, ready.number(), later);
        self.consensus.node.advance_append_async(ready);
        self.send_all(now, step)
    }

    /// Pushes a new entry to the next append, and keeps it in memory until it is applied. On a leader its payload comes from
    /// the next ordered proposal, on a follower from the leader's append (`received`). An entry at a position that is taken
    /// replaces the old entry and all after it.
    fn save_entry<S: Store>(&mut self, entry: &RaftEntry, step: &mut Step<'_, S>) {
        let (group, index, term) = (self.consensus.id, entry.index, entry.term);
        let (kind, payload, done) = match (self.proposals.next_ordered(), self.received.remove(&index)) {
            (Some(PendingEntry { entry, kind, done }), _) => (kind, entry, done),
            (None, Some((kind, payload))) => (kind, payload, None),
            // Neither proposed nor received: consensus adds an entry after an election.
            (None, None) => (EntryKind::Election, bytes::Bytes::new(), None),
        };
        if index <= self.entries.tail.last() {
            self.overwrite(index, step);
        }
        match kind {
            EntryKind::Proposed(durability) => {
                step.effects.entries += 1;
                step.effects.hard += u64::from(durability == Durability::Hard);
                if durability == Durability::Soft {
                    self.following.note_soft_entry();
                }
            }
            EntryKind::Election | EntryKind::Members => {
                step.effects.urgent |= !self.consensus.is_single_replica();
            }
        }
        step.store.push(&Record::Entry { group, index, term, kind, payload: &payload });
        let fits = self.consensus.node.mut_store().append(index, term, kind);
        assert!(fits, "invariant: consensus orders entries without gaps");
        self.entries.tail.push(Held { term, kind, payload, done });
    }

    /// A later leader replaces the entry at `index` and all after it, which were not committed.
    fn overwrite<S: Store>(&mut self, index: u64, step: &mut Step<'_, S>) {
        for (at, held) in self.entries.cut(index) {
            self.proposals.note_overwritten(at, held);
        }
        #[cfg(any(test, feature = "mutants"))]
        if crate::mutant::is_active(crate::mutant::Mutant::KeepVoidRows) && index <= self.entries.applied {
            self.entries.applied = index - 1;
        }
        if index <= self.entries.applied && !self.recovery.rows_invalid() {
            let (group, applied) = (self.consensus.id.0, self.entries.applied);
            tracing::error!(
                group,
                index,
                applied,
                "an applied entry was replaced; a copy of the rows is needed"
            );
            self.discard_rows(step);
        }
    }

    /// Reacts to a change of the state of consensus since the last call.
    fn note_state_change<S: Store>(&mut self, step: &mut Step<'_, S>) {
        let Some(StateChange { before, now }) = self.leadership.take_state_change(&self.consensus) else {
            return;
        };
        self.quiescence.wake(&mut self.consensus);
        self.leadership.draw_election_timeout(&mut self.consensus, step.random);
        if before.term != now.term {
            // Entries that a quorum had written under an earlier leader may be overwritten now.
            self.entries.soft = self.entries.applied;
            self.following.forget_leader_soft();
        }
        if now.state == StateRole::Leader {
            step.effects.elected += 1;
            let first_index = self.consensus.outline().last() + 1;
            self.leadership.note_elected(first_index, self.proposals.are_certain());
            self.replication.clear_followers();
        } else if before.state == StateRole::Leader {
            let was_removed = self.consensus.members().removed.contains(&PeerId(self.consensus.own));
            if before.term == now.term && !was_removed {
                tracing::debug!(group = self.consensus.id.0, "no quorum responds: this replica steps down");
            }
            step.effects.deposed += 1;
            self.leadership.note_deposed(self.ticks);
            let leader = self.consensus.leader();
            let syncs = self.proposals.drain_syncs();
            for done in self.reads.drain().into_iter().chain(syncs) {
                step.effects.answers.done.push((done, Err(Refusal::NotLeader { leader }.into())));
            }
            for done in self.log_bases.drain() {
                done(Err(Refusal::NotLeader { leader }.into()));
            }
        }
    }

    /// Puts the next committed membership change in force; returns whether there was one.
    fn apply_member_change<S: Store>(&mut self, step: &mut Step<'_, S>) -> Result<bool, LogError> {
        let change = self.membership.apply_next(&mut self.consensus, &self.entries.tail, step)?;
        if let Some(MemberChange::Remove(peer)) = change {
            self.replication.remove_follower(peer.0);
        }
        Ok(change.is_some())
    }

    /// Sends the messages of consensus to other replicas.
    fn send_all<S: Store>(
        &mut self,
        messages: Vec<RaftMessage>,
        step: &mut Step<'_, S>,
    ) -> Result<(), LogError> {
        if self.consensus.is_leader() && !self.persistence.term_is_durable(step.synced) {
            // A single voter leads at once. After a power loss it may lead in the same term again, with other entries.
            // Consensus takes the messages for lost and repeats them.
            return Ok(());
        }
        for mut message in messages {
            self.membership.withhold(&self.consensus, &mut message);
            match message.get_msg_type() {
                MessageType::MsgAppend => self.replication.send_append(
                    &mut self.consensus,
                    &self.entries,
                    &message,
                    step.store,
                    step.effects,
                )?,
                _ if message::is_sent(&message) => {
                    let (to, soft) = (message.to, self.entries.soft);
                    let content = Content::Consensus { message, payloads: Vec::new(), soft };
                    self.consensus.send(to, &content, step.effects);
                }
                // Proposals and reads are not forwarded, and consensus does not transfer rows.
                _ => {}
            }
        }
        Ok(())
    }
}
