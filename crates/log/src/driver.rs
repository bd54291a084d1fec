//! The log of a node as a pure step machine: it owns no thread, no clock and no file.
//!
//! In: proposals, the end of an append, the end of an fsync, the time. Out: records for a store,
//! whether an fsync is wanted, entries for the engine, answers. Each turn of its owner is
//!
//! ```text
//!   propose …  order → (append) → appended  ─┐
//!   wants_sync → (fsync elsewhere) → synced ─┴→ take_applicable → (apply) → answer
//! ```
//!
//! so that a simulation can stop it between any two arrows.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use io::Nanos;

use crate::contract::{Done, Entry};
use crate::error::{Doubt, LogError, ProposeError, Refusal};
use crate::gather::Gather;
use crate::group::{Answers, Group, Waiting};
use crate::lsn::{Durability, GroupId};
use crate::record::{EntryKind, PAYLOAD_BYTES_MAX};
use crate::store::{Forgotten, Store, StoredGroup};

/// What is asked of a group.
pub enum Work {
    /// Order this entry.
    Entry(Bytes, Durability),
    /// Make everything before durable.
    Sync,
}

/// One proposal.
pub struct Proposal {
    /// The group.
    pub group: GroupId,
    /// What is asked.
    pub work: Work,
    /// Who is told.
    pub done: Done,
}

/// All open groups, and what is between a proposal and its answer.
pub(crate) struct Driver {
    groups: HashMap<GroupId, Group>,
    // Groups with proposals that have no position yet, in order of arrival.
    proposed: Vec<GroupId>,
    // Groups whose records are in the append under way.
    appending: Vec<GroupId>,
    // Groups with appends that are not durable.
    unsynced: Vec<GroupId>,
    // Groups in which something may have become applicable.
    moved: Vec<GroupId>,
    // Appends are numbered from 1.
    appended: u64,
    // The last append a started fsync covers.
    sync_started: u64,
    gather: Gather,
    // Since when a soft entry waits for its fsync.
    soft_since: Option<Nanos>,
    soft_wait: Duration,
    sync_asked: bool,
    // Hard entries taken in since the last append.
    hard_proposed: u64,
    entries_unsynced: u64,
    batch: Vec<Entry>,
    answers: Answers,
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

impl Driver {
    /// Without groups. A soft entry waits at most `soft_wait` for an fsync.
    pub fn new(soft_wait: Duration) -> Driver {
        Driver {
            groups: HashMap::new(),
            proposed: Vec::new(),
            appending: Vec::new(),
            unsynced: Vec::new(),
            moved: Vec::new(),
            appended: 0,
            sync_started: 0,
            gather: Gather::default(),
            soft_since: None,
            soft_wait,
            sync_asked: false,
            hard_proposed: 0,
            entries_unsynced: 0,
            batch: Vec::new(),
            answers: Answers::default(),
        }
    }

    /// Adds a group whose stored entries are all applied. What its election writes goes with the
    /// next append.
    pub fn open(
        &mut self,
        id: GroupId,
        stored: &StoredGroup,
        store: &mut impl Store,
    ) -> Result<(), LogError> {
        let group = Group::open(id, stored, store, self.appended + 1)?;
        self.groups.insert(id, group);
        self.appending.push(id);
        Ok(())
    }

    /// Removes a group on which nobody waits.
    pub fn close(&mut self, id: GroupId) {
        self.groups.remove(&id);
    }

    /// Whether the group takes proposals.
    pub fn is_open(&self, id: GroupId) -> bool {
        self.groups.contains_key(&id)
    }

    /// How many groups take proposals.
    pub fn open_groups(&self) -> usize {
        self.groups.len()
    }

    /// Whether nothing of the group is on its way.
    pub fn is_idle(&self, id: GroupId) -> bool {
        self.groups.get(&id).is_none_or(Group::is_idle)
    }

    /// Takes a proposal in, or refuses it at once.
    pub fn propose(&mut self, proposal: Proposal) {
        let Proposal { group: id, work, done } = proposal;
        let Some(group) = self.groups.get_mut(&id) else {
            return done(Err(Refusal::NotOpen(id).into()));
        };
        match work {
            Work::Entry(entry, _) if entry.len() > PAYLOAD_BYTES_MAX => {
                let (bytes, bytes_max) = (entry.len(), PAYLOAD_BYTES_MAX);
                done(Err(Refusal::TooLarge { bytes, bytes_max }.into()));
            }
            Work::Entry(entry, durability) => {
                self.hard_proposed += u64::from(durability == Durability::Hard);
                let kind = EntryKind::Proposed(durability);
                if group.propose(Waiting { entry, kind, done: Some(done) }) {
                    self.proposed.push(id);
                }
            }
            Work::Sync => {
                group.propose_sync(done);
                self.sync_asked = true;
                self.moved.push(id);
            }
        }
    }

    /// Gives every proposal its position and pushes the records to `store`.
    pub fn order(&mut self, store: &mut impl Store) {
        let append = self.appended + 1;
        for id in self.proposed.drain(..) {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            for refused in group.order(store, append).into_iter().flatten() {
                if let Some(done) = refused.done {
                    done(Err(Refusal::Stopped.into()));
                }
            }
            #[cfg(feature = "ack-before-append")]
            group.answer_early(&mut self.answers);
            self.appending.push(id);
        }
    }

    /// What was pushed has been appended, `entries` entries in one write.
    pub fn appended(&mut self, now: Nanos, entries: u64) {
        self.appended += 1;
        self.entries_unsynced += entries;
        self.gather.appended(std::mem::take(&mut self.hard_proposed), now);
        self.soft_since.get_or_insert(now);
        for id in self.appending.drain(..) {
            if let Some(group) = self.groups.get_mut(&id) {
                group.appended();
                self.unsynced.push(id);
                self.moved.push(id);
            }
        }
    }

    /// Whether an fsync should start now: enough hard entries wait for it, or one has waited long
    /// enough, or a soft one, or somebody asked. The caller starts it; never two at once.
    pub fn wants_sync(&mut self, now: Nanos) -> Option<SyncWanted> {
        if self.appended == self.sync_started {
            self.sync_asked = false;
            return None;
        }
        let soft_due = self.soft_due().is_some_and(|due| due <= now);
        (self.sync_asked || soft_due || self.gather.is_due(now)).then(|| self.sync_all())
    }

    /// The fsync that covers everything appended, wanted or not.
    pub fn sync_all(&mut self) -> SyncWanted {
        self.sync_started = self.appended;
        self.sync_asked = false;
        self.soft_since = None;
        let entries = std::mem::take(&mut self.entries_unsynced);
        SyncWanted { append: self.appended, entries, hard: self.gather.start() }
    }

    fn soft_due(&self) -> Option<Nanos> {
        self.soft_since.map(|since| since.after(self.soft_wait))
    }

    /// When an fsync will be wanted if nothing more arrives.
    pub fn sync_due(&self) -> Option<Nanos> {
        [self.soft_due(), self.gather.due()].into_iter().flatten().min()
    }

    /// How many more hard entries the next fsync waits for.
    pub fn company_missing(&self) -> u64 {
        self.gather.missing()
    }

    /// The fsync that was `wanted` has ended well, after `took`.
    pub fn synced(&mut self, wanted: SyncWanted, took: Duration, store: &mut impl Store) {
        let append = wanted.append;
        self.gather.end(wanted.hard, took);
        let next = self.appended + 1;
        let mut unsynced = std::mem::take(&mut self.unsynced);
        unsynced.sort_unstable();
        unsynced.dedup();
        unsynced.retain(|id| {
            let Some(group) = self.groups.get_mut(id) else { return false };
            let pushed_bytes = store.pushed_bytes();
            group.synced(append, next, store);
            if store.pushed_bytes() > pushed_bytes {
                self.appending.push(*id);
            }
            self.moved.push(*id);
            group.is_unsynced()
        });
        self.unsynced = unsynced;
    }

    /// Entries that may be applied now, in the order of their groups' logs.
    pub fn take_applicable(&mut self) -> &[Entry] {
        self.batch.clear();
        for id in self.moved.drain(..) {
            if let Some(group) = self.groups.get_mut(&id) {
                group.take_applicable(&mut self.batch, &mut self.answers);
            }
        }
        &self.batch
    }

    /// The entries taken are applied: those who waited for them are told. Returns how many hard
    /// and soft proposals that were.
    pub fn answer(&mut self) -> (u64, u64) {
        self.batch.clear();
        for (done, lsn) in self.answers.done.drain(..) {
            done(Ok(lsn));
        }
        (std::mem::take(&mut self.answers.hard), std::mem::take(&mut self.answers.soft))
    }

    /// Up to where each group is applied and durable in the log.
    pub fn settled(&self) -> BTreeMap<GroupId, u64> {
        self.groups.iter().map(|(id, group)| (*id, group.settled())).collect()
    }

    /// Entries have left the store.
    pub fn forget(&mut self, forgotten: &[Forgotten]) {
        for gone in forgotten {
            if let Some(group) = self.groups.get_mut(&gone.group) {
                group.forget(gone);
            }
        }
    }

    /// Tells everybody who waits that their fate is unknown.
    pub fn abandon(&mut self, doubt: &Doubt) {
        for (done, _) in self.answers.done.drain(..) {
            done(Err(ProposeError::from(doubt.clone())));
        }
        let mut groups: Vec<_> = self.groups.drain().collect();
        groups.sort_by_key(|(id, _)| *id);
        for (_, mut group) in groups {
            group.abandon(doubt);
        }
    }
}
