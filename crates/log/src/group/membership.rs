//! Membership changes: which are allowed, when they are in force, and when other replicas may learn of them.
//!
//! A change is in force here once it is committed; the new members are then a record of the log. No other replica
//! learns that the change is committed before that record is durable. A removed replica leaves permanently when it
//! learns of its removal. If another replica then lost the record in a power loss, it would still need the vote of the
//! removed one, and wait for it forever.

use raft::eraftpb::{ConfChange, ConfChangeType, Message as RaftMessage};

use super::consensus::Consensus;
use crate::contract::Done;
use crate::error::{LogError, Refusal};
use crate::lsn::Lsn;
use crate::member::{MemberChange, Members, PeerId};
use crate::record::Record;
use crate::step::{Answers, Step};
use crate::store::Store;
use crate::tail::Tail;

/// Changes that are in force and not durable.
struct PendingChange {
    /// The append that makes them durable.
    append: u64,
    /// The position of the first of them.
    from: u64,
}

/// A caller that waits until the change at a position is durable.
struct ChangeWaiter {
    at: u64,
    done: Done,
}

/// The reaction of a leader to a proposed change.
pub(super) enum ChangeCheck {
    Propose,
    /// The change is in force already.
    InForce,
    /// It removes the leader, which hands over leadership first.
    HandOver,
}

/// The membership state of one replica beside the members themselves, which are in the outline.
#[derive(Default)]
pub(super) struct Membership {
    pending: Option<PendingChange>,
    waiters: Vec<ChangeWaiter>,
    /// The position of the members that were last reported to the observer.
    reported: Option<Lsn>,
    pub removed: bool,
}

impl Membership {
    /// Whether a leader may propose the change.
    pub fn check(&self, consensus: &Consensus, change: MemberChange) -> Result<ChangeCheck, Refusal> {
        // Until other replicas may learn of the last change, they would apply this one to the members before it.
        let is_changing = consensus.raft().has_pending_conf() || !self.is_durable();
        if is_changing || consensus.raft().lead_transferee.is_some() {
            return Err(Refusal::Busy);
        }
        let (own, members) = (PeerId(consensus.own), consensus.members());
        if members.changed(change).is_none() {
            return Ok(ChangeCheck::InForce);
        }
        match change {
            MemberChange::AddLearner(peer) if peer.0 == 0 || members.removed.contains(&peer) => {
                Err(Refusal::Invalid)
            }
            MemberChange::Promote(peer) if !members.learners.contains(&peer) => Err(Refusal::Invalid),
            MemberChange::Remove(peer) if peer == own => Ok(ChangeCheck::HandOver),
            _ => Ok(ChangeCheck::Propose),
        }
    }

    /// Puts the next committed change in force, and returns it; `None` if there is none.
    pub fn apply_next<S: Store>(
        &mut self,
        consensus: &mut Consensus,
        tail: &Tail,
        step: &mut Step<'_, S>,
    ) -> Result<Option<MemberChange>, LogError> {
        if consensus.members().voters.is_empty() {
            // Joining and not restored yet: the members that the change applies to come with the rows.
            return Ok(None);
        }
        // The record goes into the current append, so a replica that confirms a later change has this one durably. With
        // the members of two changes ago it could be elected beside a leader of today's members.
        let (id, through) = (consensus.id, consensus.committed());
        let Some(at) = consensus.outline().next_change(consensus.members().at.0, through) else {
            return Ok(None);
        };
        let bytes = match tail.get(at) {
            Some(held) => held.payload.clone(),
            None => step.store.read(id, at - 1, 1)?.pop().map(|entry| entry.payload).unwrap_or_default(),
        };
        let fault = |cause: String| LogError::Consensus { group: id, cause };
        let change = MemberChange::decode(&bytes)
            .ok_or_else(|| fault(format!("entry {at} is not a membership change")))?;
        let removes_self = change == MemberChange::Remove(PeerId(consensus.own));
        if removes_self && consensus.is_leader() {
            // An earlier leader proposed it. The other replicas may not know yet that it is committed, and then need this
            // vote: the replica stays until its owner removes it.
            let term = consensus.term();
            consensus.node.raft.become_follower(term, raft::INVALID_ID);
        } else {
            self.removed |= removes_self;
        }
        let mut members = consensus.members().clone();
        if let Some(changed) = members.changed(change) {
            members = changed;
            consensus
                .node
                .apply_conf_change(&conf_change(change))
                .map_err(|cause| fault(cause.to_string()))?;
        }
        members.at = Lsn(at);
        step.store.push(&Record::Member { group: id, peer: consensus.own, members: members.clone() });
        step.effects.urgent = true;
        let from = self.pending.as_ref().map_or(at, |pending| pending.from);
        self.pending = Some(PendingChange { append: step.append, from });
        consensus.node.mut_store().members = members;
        Ok(Some(change))
    }

    /// Appends up to `synced` are durable; returns whether that made a pending change durable.
    pub fn note_synced(&mut self, synced: u64) -> bool {
        self.pending.take_if(|pending| pending.append <= synced).is_some()
    }

    /// Whether the record of the members in force is durable on this replica.
    pub fn is_durable(&self) -> bool {
        self.pending.is_none()
    }

    /// Whether a quorum has the members in force durably, as far as this leader knows. From then on no election
    /// needs the votes of removed replicas.
    pub fn is_durable_on_quorum(&self, consensus: &Consensus) -> bool {
        let members = consensus.members();
        let has_it = |peer: &&PeerId| match peer.0 == consensus.own {
            true => self.is_durable(),
            // A follower confirms a commit position only when it has the members of that position durably.
            false => consensus.raft().prs().get(peer.0).is_some_and(|it| it.committed_index >= members.at.0),
        };
        self.is_durable() && members.voters.iter().filter(has_it).count() * 2 > members.voters.len()
    }

    /// Lowers the commit position in `message` below the first change that a power loss could undo here.
    pub fn withhold(&self, consensus: &Consensus, message: &mut RaftMessage) {
        let next = || consensus.outline().next_change(consensus.members().at.0, u64::MAX);
        let at = self.pending.as_ref().map(|pending| pending.from).or_else(next);
        let Some(at) = at.filter(|at| message.commit >= *at) else { return };
        match message.commit_term {
            0 => message.commit = at - 1,
            // A position is only valid with its term, and neither is required.
            _ => (message.commit, message.commit_term) = (0, 0),
        }
    }

    /// The proposer of the change at `at`, if any, is answered when the members are durable.
    pub fn await_durability(&mut self, at: u64, done: Option<Done>) {
        self.waiters.extend(done.map(|done| ChangeWaiter { at, done }));
    }

    /// Answers the proposers of changes, if the members in force are durable.
    pub fn answer(&mut self, answers: &mut Answers) {
        if self.is_durable() {
            answers.done.extend(self.waiters.drain(..).map(|waiter| (waiter.done, Ok(Lsn(waiter.at)))));
        }
    }

    /// Removes and returns the callbacks of proposers of changes.
    pub fn drain(&mut self) -> Vec<Done> {
        self.waiters.drain(..).map(|waiter| waiter.done).collect()
    }

    /// The voters, if the members have changed since the last call, and on the first call.
    pub fn take_changed_voters(&mut self, members: &Members) -> Option<Vec<PeerId>> {
        let is_new = self.reported != Some(members.at);
        self.reported = Some(members.at);
        is_new.then(|| members.voters.clone())
    }
}

/// The change as the Raft library represents it.
pub(super) fn conf_change(change: MemberChange) -> ConfChange {
    let (kind, peer) = match change {
        MemberChange::AddLearner(peer) => (ConfChangeType::AddLearnerNode, peer),
        MemberChange::Promote(peer) => (ConfChangeType::AddNode, peer),
        MemberChange::Remove(peer) => (ConfChangeType::RemoveNode, peer),
    };
    let mut change = ConfChange { node_id: peer.0, ..ConfChange::default() };
    change.set_change_type(kind);
    change
}
