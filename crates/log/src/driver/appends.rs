//! What becomes of an append: what goes with it, when it is fsynced, and what follows then.

use std::time::Duration;

use io::Nanos;

use super::{Driver, SyncWanted};
use crate::error::LogError;
use crate::store::Store;
use crate::turn::Turn;

impl Driver {
    /// Adds to what is pushed how far groups are committed that move, before that is applied.
    pub fn note_commits(&mut self, store: &mut impl Store) {
        self.uncounted.extend_from_slice(&self.moved);
        for id in self.uncounted.drain(..) {
            if let Some(group) = self.groups.get_mut(&id).filter(|group| !group.is_alone()) {
                group.note_commit(store);
            }
        }
    }

    /// What was pushed has been appended in one write. Returns how many entries that were.
    pub fn appended(&mut self, now: Nanos) -> u64 {
        self.appended += 1;
        let entries = std::mem::take(&mut self.effects.entries);
        self.entries_unsynced += entries;
        self.gather.appended(std::mem::take(&mut self.effects.hard), now);
        self.soft_since.get_or_insert(now);
        self.sync_asked |= std::mem::take(&mut self.effects.urgent);
        for id in self.appending.drain(..) {
            if let Some(group) = self.groups.get_mut(&id) {
                group.appended(&mut self.effects, self.synced);
                self.unsynced.push(id);
                self.moved.push(id);
            }
        }
        entries
    }

    /// Nothing was pushed, so there is nothing to append.
    pub fn nothing_pushed(&mut self) {
        self.appending.clear();
        self.uncounted.extend_from_slice(&self.moved);
        self.uncounted.sort_unstable();
        self.uncounted.dedup();
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
    pub fn synced(
        &mut self,
        wanted: SyncWanted,
        took: Duration,
        store: &mut impl Store,
    ) -> Result<(), LogError> {
        self.synced = wanted.append;
        self.gather.end(wanted.hard, took);
        let mut unsynced = std::mem::take(&mut self.unsynced);
        unsynced.sort_unstable();
        unsynced.dedup();
        for id in unsynced {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let pushed_bytes = store.pushed_bytes();
            group.synced(&mut turn!(self, store))?;
            if store.pushed_bytes() > pushed_bytes {
                self.appending.push(id);
            }
            if group.is_unsynced() {
                self.unsynced.push(id);
            }
            // Somebody may have joined one who was alone.
            match group.is_asleep() {
                true => self.awake.remove(&id),
                false => self.awake.insert(id),
            };
            self.moved.push(id);
        }
        Ok(())
    }
}
