//! Changes of members: how they are proposed, when they are in force, and who may hear of it.
//!
//! A change is in force here once it is committed, and its members are a record of the log then. No other
//! replica is told that it is committed before that record is durable: whoever was removed leaves for good when
//! it hears so, and a replica that lost the record with its power would wait for its vote for ever.

use raft::StateRole;
use raft::eraftpb::{ConfChange, ConfChangeType, Message as RaftMessage};

use super::Group;
use crate::contract::Done;
use crate::error::{LogError, Refusal};
use crate::lsn::Lsn;
use crate::member::{MemberChange, PeerId};
use crate::record::{EntryKind, Record};
use crate::store::Store;
use crate::turn::{Turn, Waiting};

/// Changes of members that are in force and not durable.
pub(super) struct Untold {
    /// The append that makes them durable.
    pub append: u64,
    /// The first of them.
    pub from: u64,
}

impl Group {
    /// Proposes a change of members.
    pub fn propose_change<S: Store>(
        &mut self,
        change: MemberChange,
        done: Done,
        turn: &mut Turn<'_, S>,
    ) -> Result<(), LogError> {
        match self.check_change(change) {
            Ok(true) => {}
            Ok(false) => {
                done(Ok(Lsn(self.applied)));
                return Ok(());
            }
            Err(refusal) => {
                done(Err(refusal.into()));
                return self.save(turn);
            }
        }
        let (entry, last) = (change.encode(), self.tail.last());
        self.proposing.push_back(Waiting { entry, kind: EntryKind::Members, done: Some(done) });
        if self.node.propose_conf_change(Vec::new(), conf_change(change)).is_err() {
            let refused = self.proposing.drain(..).filter_map(|waiting| waiting.done);
            refused.for_each(|done| done(Err(Refusal::Busy.into())));
        }
        self.save(turn)?;
        // The change has overtaken what waits to be ordered.
        let more = self.tail.last() - last;
        self.syncs.iter_mut().filter(|(to, _)| *to > last).for_each(|(to, _)| *to += more);
        Ok(())
    }

    /// Whether the change would change anything; refused if it cannot be made.
    fn check_change(&mut self, change: MemberChange) -> Result<bool, Refusal> {
        if self.leads().is_none() {
            return Err(Refusal::NotLeader { leader: self.leader() });
        }
        // Until the members of the last change may be told, others would take this one on top of those before.
        let is_changing = self.node.raft.has_pending_conf() || !self.members_durable_here();
        if is_changing || self.node.raft.lead_transferee.is_some() {
            return Err(Refusal::Busy);
        }
        let (own, members) = (PeerId(self.own), self.members());
        if members.changed(change).is_none() {
            return Ok(false);
        }
        match change {
            MemberChange::AddLearner(peer) if peer.0 == 0 || self.members().removed.contains(&peer) => {
                Err(Refusal::Invalid)
            }
            MemberChange::Promote(peer) if !members.learners.contains(&peer) => Err(Refusal::Invalid),
            MemberChange::Remove(peer) if peer == own => {
                let Some(next) = self.best_follower() else { return Err(Refusal::Invalid) };
                self.node.transfer_leader(next);
                Err(Refusal::NotLeader { leader: Some(PeerId(next)) })
            }
            _ => Ok(true),
        }
    }

    /// The voter that has most of the log, other than this replica.
    fn best_follower(&self) -> Option<u64> {
        let raft = &self.node.raft;
        let others = self.members().voters.iter().map(|peer| peer.0);
        let others = others.filter(|peer| *peer != self.own && !self.lacks_rows(*peer));
        let progress =
            |peer: &u64| raft.prs().get(*peer).map_or((false, 0), |it| (it.recent_active, it.matched));
        others.max_by_key(|peer| (progress(peer), *peer))
    }

    /// Puts committed changes of members in force; whether there was one.
    pub(super) fn change_members<S: Store>(&mut self, turn: &mut Turn<'_, S>) -> Result<bool, LogError> {
        if self.members().voters.is_empty() {
            // Joined and not restored: to what the changes are to be made comes with the rows.
            return Ok(false);
        }
        // Their record goes with what is appended now, so that whoever confirms a later change has it durably:
        // with members of two changes ago it could be elected beside those of today.
        let through = self.committed();
        let Some(at) = self.node.store().next_change(self.members().at.0, through) else { return Ok(false) };
        let bytes = match self.tail.get(at) {
            Some(held) => held.payload.clone(),
            None => turn.store.read(self.id, at - 1, 1)?.pop().map(|entry| entry.payload).unwrap_or_default(),
        };
        let fault = |cause: String| LogError::Consensus { group: self.id, cause };
        let change = MemberChange::decode(&bytes)
            .ok_or_else(|| fault(format!("entry {at} is no change of members")))?;
        let mut members = self.members().clone();
        let own_end = change == MemberChange::Remove(PeerId(self.own));
        if own_end && self.node.raft.state == StateRole::Leader {
            // Proposed by a leader before. The others may not know yet that it is committed, and then need this vote:
            // the replica stays until its owner lets it go.
            let term = self.node.raft.term;
            self.node.raft.become_follower(term, raft::INVALID_ID);
        } else {
            self.removed |= own_end;
        }
        if let Some(changed) = members.changed(change) {
            members = changed;
            self.node.apply_conf_change(&conf_change(change)).map_err(|cause| fault(cause.to_string()))?;
        }
        if let MemberChange::Remove(peer) = change {
            self.fellows.remove(&peer.0);
        }
        members.at = Lsn(at);
        turn.store.push(&Record::Member { group: self.id, peer: self.own, members: members.clone() });
        turn.effects.urgent = true;
        let from = self.untold.as_ref().map_or(at, |untold| untold.from);
        self.untold = Some(Untold { append: turn.append, from });
        self.node.mut_store().members = members;
        Ok(true)
    }

    /// Whether the record of the members in force is durable.
    pub(super) fn members_durable_here(&self) -> bool {
        self.untold.is_none()
    }

    /// Takes back of `message` what it says to be committed, from a change of members on that a power loss
    /// could undo here.
    pub(super) fn withhold_change(&self, message: &mut RaftMessage) {
        let next = || self.node.store().next_change(self.members().at.0, u64::MAX);
        let at = self.untold.as_ref().map(|untold| untold.from).or_else(next);
        let Some(at) = at.filter(|at| message.commit >= *at) else { return };
        match message.commit_term {
            0 => message.commit = at - 1,
            // A position goes with its term; neither need be told.
            _ => (message.commit, message.commit_term) = (0, 0),
        }
    }

    /// Whether a majority has the members in force on its disks, as far as this leader was told: from then on
    /// nobody needs those who were removed.
    pub(super) fn members_durable(&self) -> bool {
        let (raft, members) = (&self.node.raft, self.members());
        let has_it = |peer: &&PeerId| match peer.0 == self.own {
            true => self.members_durable_here(),
            // Others do not say either what is committed before they have the members of then.
            false => raft.prs().get(peer.0).is_some_and(|known| known.committed_index >= members.at.0),
        };
        self.members_durable_here() && members.voters.iter().filter(has_it).count() * 2 > members.voters.len()
    }
}

/// A change as consensus knows it.
fn conf_change(change: MemberChange) -> ConfChange {
    let (kind, peer) = match change {
        MemberChange::AddLearner(peer) => (ConfChangeType::AddLearnerNode, peer),
        MemberChange::Promote(peer) => (ConfChangeType::AddNode, peer),
        MemberChange::Remove(peer) => (ConfChangeType::RemoveNode, peer),
    };
    let mut change = ConfChange { node_id: peer.0, ..ConfChange::default() };
    change.set_change_type(kind);
    change
}
