//! The log of a node as a pure state machine, without threads, clock or files.
//!
//! In: proposals, messages, the end of an append, the end of an fsync, the time. Out: records for a store, whether an
//! fsync is due, entries for the engine, answers, messages, events. Each step of its owner is
//!
//! ```text
//!   receive, tick, propose … order → (append) → appended ─┐
//!   wants_sync → (fsync elsewhere) → synced ──────────────┴→ take_applicable → (apply) → answer → report
//! ```
//!
//! and a simulation can stop it between any two arrows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use io::{Nanos, Random};

use crate::contract::{Entry, Message};
use crate::error::{Interruption, LogError, Refusal};
use crate::group::Group;
use crate::group_commit::GroupCommit;
use crate::lsn::{GroupId, Lsn};
use crate::member::{GroupStatus, PeerId, Role};
use crate::proposal::{Proposal, Request, Work};
use crate::record::{EntryKind, PAYLOAD_BYTES_MAX};
use crate::step::{Effects, PendingEntry, Step};
use crate::store::{Compacted, Store, StoredGroup};

/// The tick interval of groups that are not quiesced; also the interval of heartbeats.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// All open groups, and their proposals that are not answered yet.
pub(crate) struct Driver {
    groups: HashMap<GroupId, Group>,
    random: Arc<dyn Random>,
    /// Groups with proposals that have no position yet, in order of arrival.
    proposed: Vec<GroupId>,
    /// Groups with records in the current append.
    pub(crate) appending: Vec<GroupId>,
    /// Groups with appends that are not durable.
    unsynced: Vec<GroupId>,
    /// Groups in which entries may have become applicable.
    progressed: Vec<GroupId>,
    /// Groups that may be committed further than their log says.
    commits_unlogged: Vec<GroupId>,
    /// Groups that need ticks, and the time of the next one.
    awake: BTreeSet<GroupId>,
    tick_at: Option<Nanos>,
    /// The number of the last append, counted from 1.
    appended: u64,
    /// The last append that a started fsync covers.
    sync_started: u64,
    /// The last append that a finished fsync covers.
    synced: u64,
    group_commit: GroupCommit,
    /// The time since which a soft entry waits for its fsync.
    soft_since: Option<Nanos>,
    soft_wait: Duration,
    sync_requested: bool,
    entries_unsynced: u64,
    batch: Vec<Entry>,
    effects: Effects,
    events: Vec<GroupEvent>,
}

/// An fsync that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SyncWanted {
    /// Appends up to this number will be durable.
    pub append: u64,
    /// How many entries that makes durable.
    pub entries: u64,
    /// How many of them are hard.
    pub hard: u64,
}

/// A change in a group that its observer is notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupEvent {
    /// The role of the local replica has changed.
    RoleChanged(GroupId, Role),
    VotersChanged(GroupId, Vec<PeerId>),
    /// A follower needs a copy of the rows.
    SnapshotNeeded(GroupId, PeerId),
    /// The local rows are invalid.
    RowsNeeded(GroupId),
    /// The local replica was removed from the group.
    Removed(GroupId, PeerId),
}

/// Changes of leadership that local replicas took part in.
pub(crate) struct LeadershipChanges {
    pub elected: u64,
    pub deposed: u64,
}

/// Numbers of proposals that were answered.
pub(crate) struct Answered {
    pub hard: u64,
    pub soft: u64,
}

/// Borrows the fields of the driver that a group needs for one step.
macro_rules! step {
    ($driver:ident, $store:ident) => {
        Step {
            store: &mut *$store,
            append: $driver.appended + 1,
            synced: $driver.synced,
            random: &*$driver.random,
            effects: &mut $driver.effects,
        }
    };
}

mod appends;

impl Driver {
    /// A driver without groups. A soft entry waits at most `soft_wait` for an fsync.
    pub fn new(soft_wait: Duration, random: Arc<dyn Random>) -> Driver {
        Driver {
            groups: HashMap::new(),
            random,
            proposed: Vec::new(),
            appending: Vec::new(),
            unsynced: Vec::new(),
            progressed: Vec::new(),
            commits_unlogged: Vec::new(),
            awake: BTreeSet::new(),
            tick_at: None,
            appended: 0,
            sync_started: 0,
            synced: 0,
            group_commit: GroupCommit::default(),
            soft_since: None,
            soft_wait,
            sync_requested: false,
            entries_unsynced: 0,
            batch: Vec::new(),
            effects: Effects::default(),
            events: Vec::new(),
        }
    }

    /// Opens a stored group. The records of its election go into the next append.
    pub fn open(
        &mut self,
        id: GroupId,
        stored: &StoredGroup,
        applied: Lsn,
        store: &mut impl Store,
    ) -> Result<(), LogError> {
        let group = Group::open(id, stored, applied, &mut step!(self, store))?;
        if !group.is_single_voter() {
            self.events.push(GroupEvent::RoleChanged(id, group.role()));
        }
        self.groups.insert(id, group);
        self.note_step(id);
        Ok(())
    }

    /// Removes a group. The outcome of its proposals is unknown, because of `cause`.
    pub fn close(&mut self, id: GroupId, cause: &Interruption) {
        self.awake.remove(&id);
        if let Some(mut group) = self.groups.remove(&id) {
            group.abandon(cause);
        }
    }

    /// The group, if it is open.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(&id)
    }

    /// The group, if it is open.
    pub fn group_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        self.groups.get_mut(&id)
    }

    /// The number of the append that records pushed now belong to.
    pub fn next_append(&self) -> u64 {
        self.appended + 1
    }

    /// The last append that is durable.
    pub fn last_synced(&self) -> u64 {
        self.synced
    }

    pub fn open_groups(&self) -> usize {
        self.groups.len()
    }

    /// Accepts a proposal, or refuses it at once.
    pub fn propose(&mut self, proposal: Proposal, store: &mut impl Store) -> Result<(), LogError> {
        let Proposal { group: id, term, work, done } = proposal;
        let Some(group) = self.groups.get_mut(&id) else {
            done(Err(Refusal::NotOpen(id).into()));
            return Ok(());
        };
        if let Err(refusal) = group.may_propose(term) {
            done(Err(refusal.into()));
            return Ok(());
        }
        let is_first = match work {
            Work::Entry(entry, _) if entry.len() > PAYLOAD_BYTES_MAX => {
                let (bytes, bytes_max) = (entry.len(), PAYLOAD_BYTES_MAX);
                done(Err(Refusal::TooLarge { bytes, bytes_max }.into()));
                return Ok(());
            }
            Work::Entry(entry, durability) => {
                let kind = EntryKind::Proposed(durability);
                group.propose(PendingEntry { entry, kind, done: Some(done) })
            }
            Work::Read => group.propose_read(done),
            Work::Sync => {
                group.propose_sync(done);
                self.sync_requested = true;
                self.progressed.push(id);
                return Ok(());
            }
            Work::Change(change) => {
                group.propose_change(change, done, &mut step!(self, store))?;
                true
            }
        };
        if is_first {
            group.wake();
            self.proposed.push(id);
        }
        Ok(())
    }

    /// Carries out a request that is not a proposal.
    pub fn request(&mut self, request: Request, store: &mut impl Store) -> Result<(), LogError> {
        let id = match request {
            Request::Transfer(id, to) => {
                self.groups.get_mut(&id).into_iter().for_each(|group| group.transfer(to));
                id
            }
            Request::SetAcks(id, acks) => {
                self.groups.get_mut(&id).into_iter().for_each(|group| group.set_acks(acks));
                id
            }
            Request::Campaign(id) => {
                self.groups.get_mut(&id).into_iter().for_each(Group::campaign);
                id
            }
            Request::LogBase(id, at, done) => {
                match self.groups.get_mut(&id) {
                    Some(group) => group.request_log_base(at, done),
                    None => done(Err(Refusal::NotOpen(id).into())),
                }
                id
            }
            Request::PeersUnreachable(peers) => {
                let peers = peers.into_iter().collect();
                let woken = self
                    .groups
                    .iter_mut()
                    .filter_map(|(id, group)| group.note_unreachable(&peers).then_some(*id));
                self.awake.extend(woken);
                return Ok(());
            }
            Request::PeersReachable(peers) => {
                let peers = peers.into_iter().collect();
                let woken = self
                    .groups
                    .iter_mut()
                    .filter_map(|(id, group)| group.note_reachable(&peers).then_some(*id));
                self.awake.extend(woken);
                return Ok(());
            }
        };
        if let Some(group) = self.groups.get_mut(&id) {
            group.wake();
            group.save(&mut step!(self, store))?;
            self.note_step(id);
        }
        Ok(())
    }

    /// Handles a message from another node.
    pub fn receive(&mut self, message: &Message, store: &mut impl Store) -> Result<(), LogError> {
        let Some(group) = self.groups.get_mut(&message.group) else { return Ok(()) };
        // A message to an earlier incarnation of the replica is ignored.
        if group.own() != message.to {
            return Ok(());
        }
        group.receive(message.from, &message.body, &mut step!(self, store))?;
        self.note_step(message.group);
        Ok(())
    }

    /// Ticks the groups that are not quiesced, if a tick is due.
    pub fn tick(&mut self, now: Nanos, store: &mut impl Store) -> Result<(), LogError> {
        if self.awake.is_empty() || self.tick_at.is_some_and(|at| at > now) {
            return Ok(());
        }
        // A node that was suspended does not make up for missed ticks, since no peer was silent meanwhile.
        self.tick_at = Some(now.after(TICK));
        for id in self.awake.iter().copied().collect::<Vec<_>>() {
            if let Some(group) = self.groups.get_mut(&id) {
                group.tick(&mut step!(self, store))?;
                self.note_step(id);
            }
        }
        Ok(())
    }

    /// When the next tick is due.
    pub fn tick_due(&self) -> Option<Nanos> {
        (!self.awake.is_empty()).then(|| self.tick_at.unwrap_or_default())
    }

    /// Gives every proposal its position and pushes the records to `store`.
    pub fn order(&mut self, store: &mut impl Store) -> Result<(), LogError> {
        for id in std::mem::take(&mut self.proposed) {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let refused = group.order(&mut step!(self, store))?;
            let leader = group.leader().filter(|_| group.leads().is_none());
            for done in refused.into_iter().filter_map(|refused| refused.done) {
                done(Err(Refusal::NotLeader { leader }.into()));
            }
            #[cfg(feature = "ack-before-append")]
            group.answer_early(&mut self.effects);
            self.note_step(id);
        }
        Ok(())
    }

    /// The group has taken a step: it takes part in the current append and what follows it.
    fn note_step(&mut self, id: GroupId) {
        if self.appending.last() != Some(&id) {
            self.appending.push(id);
        }
        if self.progressed.last() != Some(&id) {
            self.progressed.push(id);
        }
        match self.groups.get(&id).is_none_or(Group::is_quiesced) {
            true => self.awake.remove(&id),
            false => self.awake.insert(id),
        };
    }

    /// The entries that may be applied now. Within a group they have the order of its log.
    pub fn take_applicable(&mut self, store: &impl Store) -> Result<&[Entry], LogError> {
        self.batch.clear();
        for id in self.progressed.drain(..) {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            group.take_applicable(store, self.synced, &mut self.batch, &mut self.effects.answers)?;
            if let Some(voters) = group.take_changed_voters() {
                self.events.push(GroupEvent::VotersChanged(id, voters));
            }
            if let Some(role) = group.take_changed_role() {
                self.events.push(GroupEvent::RoleChanged(id, role));
            }
            if group.take_invalid_report() {
                self.events.push(GroupEvent::RowsNeeded(id));
            }
            #[cfg(any(test, feature = "mutants"))]
            if crate::mutant::is_active(crate::mutant::Mutant::ServeRemoved) {
                continue;
            }
            if group.is_removed() {
                self.events.push(GroupEvent::Removed(id, group.own()));
            }
        }
        Ok(&self.batch)
    }

    /// The entries taken are applied: answers their proposers, and returns how many proposals that were.
    pub fn answer(&mut self) -> Answered {
        self.batch.clear();
        let answers = &mut self.effects.answers;
        for (done, answer) in answers.done.drain(..) {
            done(answer);
        }
        Answered { hard: std::mem::take(&mut answers.hard), soft: std::mem::take(&mut answers.soft) }
    }

    /// The events since the last call, and the messages that may be sent now.
    pub fn take_events(&mut self) -> (Vec<GroupEvent>, Vec<Message>) {
        let needed = self.effects.snapshots_needed.drain(..);
        self.events.extend(needed.map(|(id, peer)| GroupEvent::SnapshotNeeded(id, peer)));
        (std::mem::take(&mut self.events), std::mem::take(&mut self.effects.messages))
    }

    /// The messages that are sent after the next append.
    pub fn messages(&mut self) -> &mut Vec<Message> {
        &mut self.effects.messages
    }

    /// How many local replicas were elected since the last call, and how many leaders stepped down.
    pub fn take_leadership_changes(&mut self) -> LeadershipChanges {
        let effects = &mut self.effects;
        LeadershipChanges {
            elected: std::mem::take(&mut effects.elected),
            deposed: std::mem::take(&mut effects.deposed),
        }
    }

    pub fn status(&self, id: GroupId) -> Option<GroupStatus> {
        self.groups.get(&id).map(Group::status)
    }

    /// The last position of each group that is applied, and durable in the log.
    pub fn settled(&self) -> BTreeMap<GroupId, u64> {
        self.groups.iter().map(|(id, group)| (*id, group.settled())).collect()
    }

    /// The positions after which other replicas may need entries, of the groups that have other replicas.
    pub fn needed_after(&self) -> BTreeMap<GroupId, u64> {
        self.groups.iter().filter_map(|(id, group)| Some((*id, group.needed_after()?))).collect()
    }

    /// Entries have left the store.
    pub fn compact(&mut self, compacted: &[Compacted]) {
        for compacted in compacted {
            if let Some(group) = self.groups.get_mut(&compacted.group) {
                group.compact(compacted);
            }
        }
    }

    /// Closes all groups. The outcome of all proposals is unknown, because of `cause`.
    pub fn abandon(&mut self, cause: &Interruption) {
        for (done, _) in self.effects.answers.done.drain(..) {
            done(Err(cause.clone().into()));
        }
        let mut groups: Vec<_> = self.groups.drain().collect();
        groups.sort_by_key(|(id, _)| *id);
        for (_, mut group) in groups {
            group.abandon(cause);
        }
    }
}
