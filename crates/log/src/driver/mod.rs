//! The log of a node as a pure step machine: it owns no thread, no clock and no file.
//!
//! In: proposals, messages, the end of an append, the end of an fsync, the time. Out: records for a
//! store, whether an fsync is wanted, entries for the engine, answers, messages, news. Each turn of its owner is
//!
//! ```text
//!   receive, tick, propose … order → (append) → appended ─┐
//!   wants_sync → (fsync elsewhere) → synced ──────────────┴→ take_applicable → (apply) → answer → report
//! ```
//!
//! so that a simulation can stop it between any two arrows.

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
use crate::proposal::{Ask, Proposal, Work};
use crate::record::{EntryKind, PAYLOAD_BYTES_MAX};
use crate::store::{Compacted, Store, StoredGroup};
use crate::turn::{Effects, Turn, Waiting};

/// How often time passes in groups that do not rest: the period of heartbeats.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// All open groups, and what is between a proposal and its answer.
pub(crate) struct Driver {
    groups: HashMap<GroupId, Group>,
    random: Arc<dyn Random>,
    // Groups with proposals that have no position yet, in order of arrival.
    proposed: Vec<GroupId>,
    // Groups whose records are in the append under way.
    pub(crate) appending: Vec<GroupId>,
    // Groups with appends that are not durable.
    unsynced: Vec<GroupId>,
    // Groups in which something may have become applicable.
    moved: Vec<GroupId>,
    // Those that may be committed further than the log says.
    uncounted: Vec<GroupId>,
    // Groups that time passes in, and when it does next.
    awake: BTreeSet<GroupId>,
    tick_at: Option<Nanos>,
    // Appends are numbered from 1.
    appended: u64,
    // The last append a started fsync covers, and a finished one.
    sync_started: u64,
    synced: u64,
    gather: GroupCommit,
    // Since when a soft entry waits for its fsync.
    soft_since: Option<Nanos>,
    soft_wait: Duration,
    sync_asked: bool,
    entries_unsynced: u64,
    batch: Vec<Entry>,
    effects: Effects,
    news: Vec<News>,
}

/// An fsync that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SyncWanted {
    /// Appends up to this number will be durable.
    pub append: u64,
    /// How many entries that makes durable.
    pub entries: u64,
    /// How many of them are hard.
    pub hard: u64,
}

/// Something that happened to a group, for whoever watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The replica plays another part.
    Role(GroupId, Role),
    /// Others vote.
    Voters(GroupId, Vec<PeerId>),
    /// A follower needs a copy of the rows.
    WantsSnapshot(GroupId, PeerId),
    /// The rows here are void.
    NeedsRows(GroupId),
    /// The replica here was removed, and must leave.
    Removed(GroupId, PeerId),
}

/// Borrows of the driver's fields for one step of one group.
macro_rules! turn {
    ($driver:ident, $store:ident) => {
        Turn {
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
    /// Without groups. A soft entry waits at most `soft_wait` for an fsync.
    pub fn new(soft_wait: Duration, random: Arc<dyn Random>) -> Driver {
        Driver {
            groups: HashMap::new(),
            random,
            proposed: Vec::new(),
            appending: Vec::new(),
            unsynced: Vec::new(),
            moved: Vec::new(),
            uncounted: Vec::new(),
            awake: BTreeSet::new(),
            tick_at: None,
            appended: 0,
            sync_started: 0,
            synced: 0,
            gather: GroupCommit::default(),
            soft_since: None,
            soft_wait,
            sync_asked: false,
            entries_unsynced: 0,
            batch: Vec::new(),
            effects: Effects::default(),
            news: Vec::new(),
        }
    }

    /// Adds a group as it is stored. What its election writes goes with the next append.
    pub fn open(
        &mut self,
        id: GroupId,
        stored: &StoredGroup,
        applied: Lsn,
        store: &mut impl Store,
    ) -> Result<(), LogError> {
        let group = Group::open(id, stored, applied, &mut turn!(self, store))?;
        if !group.is_alone() {
            self.news.push(News::Role(id, group.role()));
        }
        self.groups.insert(id, group);
        self.touched(id);
        Ok(())
    }

    /// Removes a group; whoever waits in it is told that its fate is unknown.
    pub fn close(&mut self, id: GroupId, doubt: &Interruption) {
        self.awake.remove(&id);
        if let Some(mut group) = self.groups.remove(&id) {
            group.abandon(doubt);
        }
    }

    /// The group, if it is open.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(&id)
    }

    /// As [`Driver::group`].
    pub fn group_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        self.groups.get_mut(&id)
    }

    /// The number of the append that is pushed to now.
    pub fn next_append(&self) -> u64 {
        self.appended + 1
    }

    /// The last append that is durable.
    pub fn last_synced(&self) -> u64 {
        self.synced
    }

    /// How many groups are open.
    pub fn open_groups(&self) -> usize {
        self.groups.len()
    }

    /// Takes a proposal in, or refuses it at once.
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
                group.propose(Waiting { entry, kind, done: Some(done) })
            }
            Work::Read => group.propose_read(done),
            Work::Sync => {
                group.propose_sync(done);
                self.sync_asked = true;
                self.moved.push(id);
                return Ok(());
            }
            Work::Change(change) => {
                group.propose_change(change, done, &mut turn!(self, store))?;
                true
            }
        };
        if is_first {
            group.wake();
            self.proposed.push(id);
        }
        Ok(())
    }

    /// Does what is asked of groups without a proposal.
    pub fn ask(&mut self, ask: Ask, store: &mut impl Store) -> Result<(), LogError> {
        let id = match ask {
            Ask::Transfer(id, to) => {
                self.groups.get_mut(&id).into_iter().for_each(|group| group.transfer(to));
                id
            }
            Ask::Acks(id, acks) => {
                self.groups.get_mut(&id).into_iter().for_each(|group| group.set_acks(acks));
                id
            }
            Ask::Campaign(id) => {
                self.groups.get_mut(&id).into_iter().for_each(Group::campaign);
                id
            }
            Ask::LogBase(id, at, done) => {
                match self.groups.get_mut(&id) {
                    Some(group) => group.ask_origin(at, done),
                    None => done(Err(Refusal::NotOpen(id).into())),
                }
                id
            }
            Ask::Silent(peers) => {
                let peers = peers.into_iter().collect();
                let woken =
                    self.groups.iter_mut().filter_map(|(id, group)| group.silent(&peers).then_some(*id));
                self.awake.extend(woken);
                return Ok(());
            }
            Ask::Back(peers) => {
                let peers = peers.into_iter().collect();
                let woken =
                    self.groups.iter_mut().filter_map(|(id, group)| group.back(&peers).then_some(*id));
                self.awake.extend(woken);
                return Ok(());
            }
        };
        if let Some(group) = self.groups.get_mut(&id) {
            group.wake();
            group.save(&mut turn!(self, store))?;
            self.touched(id);
        }
        Ok(())
    }

    /// Takes a message from another node.
    pub fn receive(&mut self, message: &Message, store: &mut impl Store) -> Result<(), LogError> {
        let Some(group) = self.groups.get_mut(&message.group) else { return Ok(()) };
        // Another incarnation's messages are nobody's.
        if !group.is_peer(message.to) {
            return Ok(());
        }
        group.receive(message.from, &message.body, &mut turn!(self, store))?;
        self.touched(message.group);
        Ok(())
    }

    /// Lets time pass where groups do not rest, if it is due.
    pub fn tick(&mut self, now: Nanos, store: &mut impl Store) -> Result<(), LogError> {
        if self.awake.is_empty() || self.tick_at.is_some_and(|at| at > now) {
            return Ok(());
        }
        // A node that was stopped for a while does not make up for it: nobody was silent.
        self.tick_at = Some(now.after(TICK));
        for id in self.awake.iter().copied().collect::<Vec<_>>() {
            if let Some(group) = self.groups.get_mut(&id) {
                group.tick(&mut turn!(self, store))?;
                self.touched(id);
            }
        }
        Ok(())
    }

    /// When time passes next in some group.
    pub fn tick_due(&self) -> Option<Nanos> {
        (!self.awake.is_empty()).then(|| self.tick_at.unwrap_or_default())
    }

    /// Gives every proposal its position and pushes the records to `store`.
    pub fn order(&mut self, store: &mut impl Store) -> Result<(), LogError> {
        for id in std::mem::take(&mut self.proposed) {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let refused = group.order(&mut turn!(self, store))?;
            let leader = group.leader().filter(|_| group.leads().is_none());
            for done in refused.into_iter().filter_map(|refused| refused.done) {
                done(Err(Refusal::NotLeader { leader }.into()));
            }
            #[cfg(feature = "ack-before-append")]
            group.answer_early(&mut self.effects);
            self.touched(id);
        }
        Ok(())
    }

    /// Something was done in the group: it takes part in what follows an append.
    fn touched(&mut self, id: GroupId) {
        if self.appending.last() != Some(&id) {
            self.appending.push(id);
        }
        if self.moved.last() != Some(&id) {
            self.moved.push(id);
        }
        match self.groups.get(&id).is_none_or(Group::is_asleep) {
            true => self.awake.remove(&id),
            false => self.awake.insert(id),
        };
    }

    /// Entries that may be applied now, in the order of their groups' logs.
    pub fn take_applicable(&mut self, store: &impl Store) -> Result<&[Entry], LogError> {
        self.batch.clear();
        for id in self.moved.drain(..) {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            group.take_applicable(store, self.synced, &mut self.batch, &mut self.effects.answers)?;
            if let Some(voters) = group.changed_voters() {
                self.news.push(News::Voters(id, voters));
            }
            if let Some(role) = group.changed_role() {
                self.news.push(News::Role(id, role));
            }
            if group.needs_rows() {
                self.news.push(News::NeedsRows(id));
            }
            #[cfg(any(test, feature = "mutants"))]
            if crate::mutant::is_active(crate::mutant::Mutant::ServeRemoved) {
                continue;
            }
            if group.is_removed() {
                self.news.push(News::Removed(id, group.own()));
            }
        }
        Ok(&self.batch)
    }

    /// The entries taken are applied: those who waited for them are told. Returns how many hard
    /// and soft proposals that were.
    pub fn answer(&mut self) -> (u64, u64) {
        self.batch.clear();
        let answers = &mut self.effects.answers;
        for (done, answer) in answers.done.drain(..) {
            done(answer);
        }
        (std::mem::take(&mut answers.hard), std::mem::take(&mut answers.soft))
    }

    /// What happened since the last call, and the messages that may leave now.
    pub fn take_news(&mut self) -> (Vec<News>, Vec<Message>) {
        let wanted = self.effects.wanted.drain(..).map(|(id, peer)| News::WantsSnapshot(id, peer));
        self.news.extend(wanted);
        (std::mem::take(&mut self.news), std::mem::take(&mut self.effects.messages))
    }

    /// The messages that leave when the next append is done.
    pub fn messages(&mut self) -> &mut Vec<Message> {
        &mut self.effects.messages
    }

    /// How many replicas here were elected since the last call, and how many lost their office.
    pub fn take_offices(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.effects.elected), std::mem::take(&mut self.effects.deposed))
    }

    /// The state of a group.
    pub fn status(&self, id: GroupId) -> Option<GroupStatus> {
        self.groups.get(&id).map(Group::status)
    }

    /// Up to where each group is applied and durable in the log.
    pub fn settled(&self) -> BTreeMap<GroupId, u64> {
        self.groups.iter().map(|(id, group)| (*id, group.settled())).collect()
    }

    /// Entries have left the store.
    pub fn forget(&mut self, forgotten: &[Compacted]) {
        for gone in forgotten {
            if let Some(group) = self.groups.get_mut(&gone.group) {
                group.forget(gone);
            }
        }
    }

    /// Tells everybody who waits that their fate is unknown.
    pub fn abandon(&mut self, doubt: &Interruption) {
        for (done, _) in self.effects.answers.done.drain(..) {
            done(Err(doubt.clone().into()));
        }
        let mut groups: Vec<_> = self.groups.drain().collect();
        groups.sort_by_key(|(id, _)| *id);
        for (_, mut group) in groups {
            group.abandon(doubt);
        }
    }
}
