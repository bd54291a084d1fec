//! One turn of the log after the other: what the log thread does, without the thread.
//!
//! Holds the driver, the store and the applier together. A simulation drives it directly and
//! decides when an fsync ends.

mod endings;
mod groups;
mod space;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use io::{Clock, Nanos, Random};

use crate::contract::{Applier, GroupObserver, Message, Transport};
use crate::driver::{Driver, News, SyncWanted};
use crate::error::{ApplyError, Interruption, LogError, Refusal};
use crate::lsn::GroupId;
use crate::member::{GroupStatus, PeerId};
use crate::proposal::{Ask, Proposal, Work};
use crate::record::Record;
use crate::stats::LogStats;
use crate::store::{Store, StoreError, SyncTask};

use endings::Endings;
use space::Full;

/// One append holds at most about this much, so that a backlog of large entries is not doubled
/// in memory.
const APPEND_BYTES_MAX: usize = 16 << 20;
/// So many hard entries are appended together while an fsync is under way.
const APPENDS_DURING_SYNC: usize = 32;

/// When the log does what nobody waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How long a soft entry may wait for an fsync; also how soon a full disk is tried again.
    pub soft_wait: Duration,
    /// The engine is flushed and segments deleted when the log holds more.
    pub log_bytes_max: u64,
}

/// Everything outside the log that it speaks to.
pub(crate) struct Outside {
    pub applier: Arc<dyn Applier>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub transport: Arc<dyn Transport>,
    pub observer: Arc<dyn GroupObserver>,
}

/// An fsync on its way: run it anywhere, then give it to [`Runner::end_sync`].
pub(crate) struct Syncing {
    task: SyncTask,
    wanted: SyncWanted,
    started: Nanos,
}

/// A flush of the engine on its way: what may leave the log once it is done.
pub(crate) struct Flushing {
    settled: BTreeMap<GroupId, u64>,
}

/// The log of a node, turn by turn.
pub(crate) struct Runner<S> {
    driver: Driver,
    store: S,
    outside: Outside,
    pace: Pace,
    stats: LogStats,
    sync_running: bool,
    last_sync: Nanos,
    flush_running: bool,
    // The size at which the engine is flushed next.
    flush_at_bytes: u64,
    full: Option<Full>,
    failed: Option<Interruption>,
    // Groups that were left here, and the append that says so.
    leaving: Vec<(GroupId, u64)>,
    // Groups that have ended, until that is durable.
    endings: Endings,
}

impl Syncing {
    /// When it was wanted.
    pub fn started(&self) -> Nanos {
        self.started
    }

    /// The fsync itself.
    pub fn run(&self) -> std::io::Result<()> {
        self.task.run()
    }
}

impl<S: Store> Runner<S> {
    /// A runner over a store that was just opened; no group is open yet.
    pub fn new(store: S, outside: Outside, pace: Pace) -> Runner<S> {
        Runner {
            driver: Driver::new(pace.soft_wait, Arc::clone(&outside.random)),
            store,
            last_sync: outside.clock.now(),
            outside,
            pace,
            stats: LogStats::default(),
            sync_running: false,
            flush_running: false,
            flush_at_bytes: pace.log_bytes_max,
            full: None,
            failed: None,
            leaving: Vec::new(),
            endings: Endings::default(),
        }
    }

    /// The state of a group.
    pub fn group_status(&self, id: GroupId) -> Result<GroupStatus, LogError> {
        self.driver.status(id).ok_or(LogError::NotOpen(id))
    }

    /// Does what is asked of groups without a proposal.
    pub fn ask(&mut self, ask: Ask) {
        if self.may_write() {
            let asked = self.driver.ask(ask, &mut self.store);
            self.succeed(asked);
            self.append();
        } else {
            ask.refuse(&Refusal::Stopped);
        }
    }

    /// Takes messages from other nodes. Leaves `messages` empty.
    pub fn receive(&mut self, messages: &mut Vec<Message>) {
        if messages.is_empty() {
            return;
        }
        for message in messages.drain(..) {
            if self.may_write() {
                let received = self.driver.receive(&message, &mut self.store);
                self.succeed(received);
            } else {
                // Those who write will write again.
                self.receive_while_full(&message);
            }
            if self.store.pushed_bytes() > APPEND_BYTES_MAX {
                self.append();
            }
        }
        self.append();
    }

    /// Whether something that nobody proposed can be taken in.
    fn may_write(&mut self) -> bool {
        let idle = self.store.pushed_bytes() == 0;
        self.failed.is_none() && self.full.is_none() && (!idle || self.make_room().is_ok())
    }

    fn succeed(&mut self, result: Result<(), LogError>) {
        if let Err(cause) = result {
            self.fail(&Interruption::Disk(cause.to_string()));
        }
    }

    /// Appends, fsyncs on this thread, and answers everybody. No other fsync may be under way:
    /// of two at once on one file, only one is told of a failure.
    pub fn settle(&mut self) {
        assert!(!self.sync_running, "invariant: whoever settles has waited for the fsync");
        self.append();
        if self.failed.is_some() || self.full.is_some() {
            return;
        }
        let wanted = self.driver.sync_all();
        let syncing = Syncing { task: self.store.begin_sync(), wanted, started: self.outside.clock.now() };
        let result = syncing.run();
        self.end_sync(syncing, result);
    }

    /// One turn: gives every proposal its position, appends all of them, applies what may be
    /// applied and answers. Leaves `proposals` empty.
    pub fn turn(&mut self, proposals: &mut Vec<Proposal>) {
        let mut waiting = proposals.drain(..).peekable();
        while waiting.peek().is_some() {
            if let Err(refusal) = self.may_take() {
                return self.refuse(waiting, &refusal);
            }
            let mut bytes = 0;
            while bytes < APPEND_BYTES_MAX
                && let Some(proposal) = waiting.next()
            {
                if let Work::Entry(entry, _) = &proposal.work {
                    bytes += entry.len();
                }
                let proposed = self.driver.propose(proposal, &mut self.store);
                self.succeed(proposed);
            }
            let ordered = self.driver.order(&mut self.store);
            self.succeed(ordered);
            self.append();
        }
    }

    /// Whether new proposals can be taken. Asked before anything of them is written, so that
    /// the answer is definite.
    fn may_take(&mut self) -> Result<(), Refusal> {
        if self.failed.is_some() {
            return Err(Refusal::Stopped);
        }
        if self.full.is_some() {
            return Err(Refusal::Full);
        }
        self.make_room()
    }

    /// Writes what was pushed, then applies and answers.
    fn append(&mut self) {
        if self.failed.is_some() {
            return;
        }
        if cfg!(feature = "ack-before-append") {
            self.driver.answer();
        }
        if self.store.pushed_bytes() > 0 {
            self.driver.note_commits(&mut self.store);
        }
        let bytes = self.store.pushed_bytes();
        if bytes > 0 {
            let now = self.outside.clock.now();
            match self.store.write() {
                Ok(()) => {}
                Err(StoreError::Full) => return self.found_full(),
                Err(StoreError::Disk(cause)) => return self.fail(&Interruption::Disk(cause.to_string())),
            }
            self.found_space();
            self.stats.appends += self.driver.appended(now);
            self.stats.append_bytes += bytes as u64;
            self.stats.writes += 1;
        } else {
            self.driver.nothing_pushed();
        }
        self.apply();
        self.deliver();
    }

    fn apply(&mut self) {
        let batch = match self.driver.take_applicable(&self.store) {
            Ok(batch) => batch,
            Err(cause) => return self.fail(&Interruption::Disk(cause.to_string())),
        };
        if !batch.is_empty()
            && let Err(ApplyError(cause)) = self.outside.applier.apply(batch)
        {
            return self.fail(&Interruption::Apply(cause));
        }
        let (hard, soft) = self.driver.answer();
        self.stats.acks_hard += hard;
        self.stats.acks_soft += soft;
    }

    /// Sends the messages that may leave, and tells whoever watches.
    fn deliver(&mut self) {
        if self.failed.is_some() {
            return;
        }
        let (elected, deposed) = self.driver.take_offices();
        self.stats.elected += elected;
        self.stats.deposed += deposed;
        let (news, messages) = self.driver.take_news();
        if !messages.is_empty() {
            self.outside.transport.send(messages);
        }
        for news in news {
            let observer = &self.outside.observer;
            match news {
                News::Role(id, role) => observer.role_changed(id, role),
                News::Voters(id, voters) => observer.voters_changed(id, &voters),
                News::WantsSnapshot(id, to) => observer.snapshot_needed(id, to),
                News::NeedsRows(id) => observer.rows_needed(id),
                News::Removed(id, peer) => self.remove(id, peer),
            }
        }
    }

    /// A replica that was removed leaves; its last word is durable before its owner is told.
    fn remove(&mut self, id: GroupId, peer: PeerId) {
        if self.driver.group(id).is_none() {
            return;
        }
        self.note_ending(id);
        self.driver.close(id, &Interruption::Closed);
        self.store.push(&Record::Gone { group: id, peer: peer.0 });
        self.leaving.push((id, self.driver.next_append()));
        self.append();
    }

    /// Tells the owners of replicas that have left durably.
    fn tell_removed(&mut self) {
        let synced = self.driver.last_synced();
        for (id, _) in self.leaving.extract_if(.., |(_, append)| *append <= synced) {
            self.outside.observer.removed(id);
        }
    }

    /// The fsync that should start now, if any. Hand it back with [`Runner::end_sync`].
    pub fn begin_sync(&mut self) -> Option<Syncing> {
        if self.sync_running || self.failed.is_some() {
            return None;
        }
        let started = self.outside.clock.now();
        let wanted = self.driver.wants_sync(started)?;
        self.sync_running = true;
        Some(Syncing { task: self.store.begin_sync(), wanted, started })
    }

    /// An fsync has ended: what it covers is committed, applied and answered. If it failed the
    /// log has failed, for good.
    pub fn end_sync(&mut self, syncing: Syncing, result: std::io::Result<()>) {
        self.sync_running = false;
        if self.failed.is_some() {
            return;
        }
        if let Err(cause) = result {
            return self.fail(&Interruption::Disk(cause.to_string()));
        }
        let Syncing { task, wanted, started } = syncing;
        self.last_sync = self.outside.clock.now();
        let took = self.last_sync.since(started);
        self.stats.fsyncs += 1;
        self.stats.fsync_us += took.as_micros() as u64;
        self.stats.count_commit(wanted.entries);
        self.store.end_sync(task.through());
        let synced = self.driver.synced(wanted, took, &mut self.store);
        self.succeed(synced);
        // What consensus wants kept now goes with the messages it wants sent.
        self.append();
        self.tell_removed();
        if self.failed.is_none() && self.full.is_none() {
            // If the disk is full, the next proposal hears of it.
            let _ = self.make_room();
        }
    }

    /// How many hard proposals may arrive before this needs a turn. While an fsync is under way,
    /// or company for the next is waited for, waking up for each of them is wasted. A log that has
    /// failed refuses each as it comes: nothing else would wake it.
    pub fn patience(&self) -> usize {
        if self.failed.is_some() {
            return 1;
        }
        match self.sync_running {
            true => APPENDS_DURING_SYNC,
            false => (self.driver.company_missing() as usize).clamp(1, APPENDS_DURING_SYNC),
        }
    }

    /// Whether a turn would find nothing that is known to take long: no segment to begin, no full disk.
    pub fn may_be_quick(&self) -> bool {
        self.failed.is_none() && self.full.is_none() && self.store.has_room()
    }

    /// Whether an fsync is under way.
    pub fn is_syncing(&self) -> bool {
        self.sync_running
    }

    /// Does what has fallen due without anybody asking.
    pub fn tick(&mut self) {
        let now = self.outside.clock.now();
        if self.full.is_some_and(|full| full.tried.after(self.pace.soft_wait) <= now) {
            self.try_again();
        }
        if self.mark_due().is_some_and(|due| due <= now) {
            // So that damage to what the last fsync saved can be told from a torn tail.
            self.store.push_mark();
            self.append();
        }
        if self.driver.tick_due().is_some_and(|due| due <= now) && self.may_write() {
            let ticked = self.driver.tick(now, &mut self.store);
            self.succeed(ticked);
            self.append();
        }
    }

    /// When to look again although nothing arrives.
    pub fn due(&self) -> Option<Nanos> {
        let sync = self.driver.sync_due().filter(|_| !self.sync_running);
        let full = self.full.map(|full| full.tried.after(self.pace.soft_wait));
        let tick = self.driver.tick_due().filter(|_| self.full.is_none());
        let due = [sync, full, self.mark_due(), tick].into_iter().flatten().min();
        due.filter(|_| self.failed.is_none())
    }

    fn mark_due(&self) -> Option<Nanos> {
        let idle = self.driver.sync_due().is_none() && self.full.is_none();
        let wanted = idle && self.failed.is_none() && self.store.wants_mark();
        wanted.then(|| self.last_sync.after(self.pace.soft_wait))
    }

    /// A flush of the engine, if the log has grown enough for one. Hand it back with
    /// [`Runner::end_flush`] once [`Applier::flush`] has returned.
    pub fn begin_flush(&mut self) -> Option<Flushing> {
        let size = self.store.size();
        let wanted = size.bytes >= self.flush_at_bytes && size.segments > 1;
        if !wanted || self.flush_running || self.failed.is_some() {
            return None;
        }
        self.flush_running = true;
        let mut settled = self.driver.settled();
        for (group, until) in self.endings.settled(self.driver.last_synced()) {
            // It may be here again, as another replica.
            settled.entry(group).or_insert(until);
        }
        Some(Flushing { settled })
    }

    /// The engine has everything up to `flushing` durably, or failed: whole segments leave.
    pub fn end_flush(&mut self, flushing: &Flushing, result: Result<(), ApplyError>) {
        self.flush_running = false;
        if self.failed.is_some() {
            return;
        }
        if let Err(ApplyError(cause)) = result {
            return self.fail(&Interruption::Apply(cause));
        }
        let segments_before = self.store.size().segments;
        let ending = self.endings.groups(self.driver.last_synced());
        match self.store.delete_flushed(&flushing.settled, &ending) {
            Ok(forgotten) => self.driver.forget(&forgotten),
            Err(cause) => return self.fail(&Interruption::Disk(cause.to_string())),
        }
        let size = self.store.size();
        self.stats.segments_deleted += segments_before - size.segments;
        // If a group holds segments back, do not flush again for every entry.
        let step = self.pace.log_bytes_max / 8;
        self.flush_at_bytes = self.pace.log_bytes_max.max(size.bytes + step);
    }

    /// Ends well: everything durable, and a mark that says so.
    pub fn finish(&mut self) {
        self.settle();
        if self.failed.is_none() && self.full.is_none() {
            self.store.push_mark();
            self.append();
            self.settle();
            if let Err(cause) = self.store.note_end() {
                tracing::warn!(
                    "the end of the log is not noted, so that nobody would notice if it were cut: {cause}"
                );
            }
        }
        self.driver.abandon(&Interruption::Closed);
    }

    /// What was done so far.
    pub fn stats(&self) -> LogStats {
        let mut stats = self.stats.clone();
        let size = self.store.size();
        stats.segments = size.segments;
        stats.disk_bytes = size.bytes;
        stats.groups = self.driver.open_groups() as u64;
        stats
    }

    /// The term in which consensus has elected this node's replica, if it has.
    #[cfg(test)]
    pub fn elected(&self, id: GroupId) -> Option<crate::lsn::Term> {
        self.driver.group(id)?.elected()
    }

    /// Why the log has stopped for good, if it has.
    pub fn failure(&self) -> Option<&Interruption> {
        self.failed.as_ref()
    }

    fn fail(&mut self, doubt: &Interruption) {
        tracing::error!(%doubt, "log has stopped");
        self.driver.abandon(doubt);
        self.failed = Some(doubt.clone());
        // Space that comes back brings nothing back.
        self.full = None;
    }
}
