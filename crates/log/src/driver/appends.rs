//! The steps after one `write` of the store, which has the records of all groups: the `fsync`, and
//! the work of the groups after each of them.

use std::time::Duration;

use io::Nanos;

use super::{Driver, SyncWanted};
use crate::error::LogError;
use crate::step::Step;
use crate::store::Store;

impl Driver {
    /// Adds to the pushed records the commit positions that have advanced, before the entries up to there are applied.
    pub fn push_commits(&mut self, store: &mut impl Store) {
        self.commits_unlogged.extend_from_slice(&self.progressed);
        for id in self.commits_unlogged.drain(..) {
            if let Some(group) = self.groups.get_mut(&id).filter(|group| !group.is_single_voter()) {
                group.push_commit(store);
            }
        }
    }

    /// The pushed records were appended in one write. Returns the number of entries among them.
    pub fn appended(&mut self, now: Nanos) -> u64 {
        self.appended += 1;
        let entries = std::mem::take(&mut self.effects.entries);
        self.entries_unsynced += entries;
        self.group_commit.appended(std::mem::take(&mut self.effects.hard), now);
        self.soft_since.get_or_insert(now);
        self.sync_requested |= std::mem::take(&mut self.effects.urgent);
        for id in self.appending.drain(..) {
            if let Some(group) = self.groups.get_mut(&id) {
                group.appended(&mut self.effects, self.synced);
                self.unsynced.push(id);
                self.progressed.push(id);
            }
        }
        entries
    }

    /// No record was pushed, so there is no append.
    pub fn nothing_pushed(&mut self) {
        self.appending.clear();
        self.commits_unlogged.extend_from_slice(&self.progressed);
        self.commits_unlogged.sort_unstable();
        self.commits_unlogged.dedup();
    }

    /// Whether an fsync should start now: enough hard entries wait for it, or one of them or a soft one has waited long
    /// enough, or it was requested. The caller starts it, and never two at once.
    pub fn wants_sync(&mut self, now: Nanos) -> Option<SyncWanted> {
        if self.appended == self.sync_started {
            self.sync_requested = false;
            return None;
        }
        let soft_due = self.soft_due().is_some_and(|due| due <= now);
        (self.sync_requested || soft_due || self.group_commit.is_due(now)).then(|| self.sync_all())
    }

    /// An fsync that covers everything appended, whether or not one is due.
    pub fn sync_all(&mut self) -> SyncWanted {
        self.sync_started = self.appended;
        self.sync_requested = false;
        self.soft_since = None;
        let entries = std::mem::take(&mut self.entries_unsynced);
        SyncWanted { append: self.appended, entries, hard: self.group_commit.start() }
    }

    fn soft_due(&self) -> Option<Nanos> {
        self.soft_since.map(|since| since.after(self.soft_wait))
    }

    /// When an fsync will be due if nothing more arrives.
    pub fn sync_due(&self) -> Option<Nanos> {
        [self.soft_due(), self.group_commit.due()].into_iter().flatten().min()
    }

    /// How many more hard entries the next fsync waits for.
    pub fn hard_entries_missing(&self) -> u64 {
        self.group_commit.missing()
    }

    /// The fsync that was `wanted` has succeeded after `took`.
    pub fn synced(
        &mut self,
        wanted: SyncWanted,
        took: Duration,
        store: &mut impl Store,
    ) -> Result<(), LogError> {
        self.synced = wanted.append;
        self.group_commit.end(wanted.hard, took);
        let mut unsynced = std::mem::take(&mut self.unsynced);
        unsynced.sort_unstable();
        unsynced.dedup();
        for id in unsynced {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let pushed_bytes = store.pushed_bytes();
            group.synced(&mut step!(self, store))?;
            if store.pushed_bytes() > pushed_bytes {
                self.appending.push(id);
            }
            if group.is_unsynced() {
                self.unsynced.push(id);
            }
            // A group with one replica may have got a second.
            match group.is_quiesced() {
                true => self.awake.remove(&id),
                false => self.awake.insert(id),
            };
            self.progressed.push(id);
        }
        Ok(())
    }
}
