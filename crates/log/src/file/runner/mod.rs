//! The steps of the log thread, without the thread. A simulation calls them directly and decides when an fsync ends.
//!
//! `core` is the write path. This file adds what arrives and what falls due, and `groups` opens and closes groups; both
//! use only `core`.

mod core;
mod groups;
mod release;
mod removed_groups;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use io::Nanos;

use crate::contract::Message;
use crate::driver::{Driver, SyncWanted};
use crate::error::{ApplyError, Interruption, LogError, Refusal};
use crate::lsn::GroupId;
use crate::member::GroupStatus;
use crate::proposal::{Proposal, Request, Work};
use crate::stats::LogStats;
use crate::store::{Store, SyncTask};

use core::Core;
pub(crate) use core::Environment;
pub(crate) use release::FlushJob;
use release::{LogState, Release};
use removed_groups::RemovedGroups;

/// One append holds at most about this much, so that a backlog of large entries is not doubled in memory.
const APPEND_BYTES_MAX: usize = 16 << 20;
/// While an fsync is running, up to this many hard entries are collected for one append.
const APPENDS_DURING_SYNC: usize = 32;

/// When the log does work that no caller waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushPolicy {
    /// The longest time a soft entry waits for an fsync; also the interval between attempts to write to a full disk.
    pub soft_wait: Duration,
    /// The engine is flushed when the log holds more, and segments that other replicas may need are deleted, too.
    pub log_bytes_max: u64,
    /// The engine is flushed when more would be replayed after a crash.
    pub replay_bytes_max: u64,
    /// The engine is flushed this long after the last time, if anything worth it was appended since.
    pub flush_interval: Duration,
}

/// An fsync: run it on any thread, then pass it to [`Runner::end_sync`].
pub(crate) struct SyncJob {
    task: SyncTask,
    wanted: SyncWanted,
    started: Nanos,
}

/// The log of a node, step by step.
pub(crate) struct Runner<S> {
    core: Core<S>,
    policy: FlushPolicy,
    release: Release,
}

impl SyncJob {
    /// The time at which the fsync was begun.
    pub fn started(&self) -> Nanos {
        self.started
    }

    /// Runs the fsync.
    pub fn run(&self) -> std::io::Result<()> {
        self.task.run()
    }
}

impl<S: Store> Runner<S> {
    /// A runner over a store that was just opened; no group is open yet.
    pub fn new(store: S, environment: Environment, policy: FlushPolicy) -> Runner<S> {
        let core = Core {
            driver: Driver::new(policy.soft_wait, Arc::clone(&environment.random)),
            store,
            last_sync: environment.clock.now(),
            environment,
            stats: LogStats::default(),
            full: None,
            failed: None,
            removed_groups: RemovedGroups::default(),
            sync_running: false,
        };
        Runner { release: Release::new(policy, core.last_sync), core, policy }
    }

    /// The state of a group.
    pub fn group_status(&self, id: GroupId) -> Result<GroupStatus, LogError> {
        self.core.driver.status(id).ok_or(LogError::NotOpen(id))
    }

    /// Carries out a request that is not a proposal.
    pub fn request(&mut self, request: Request) {
        if self.core.may_write() {
            let result = self.core.driver.request(request, &mut self.core.store);
            self.core.stop_on_error(result);
            self.core.append();
        } else {
            request.refuse(&Refusal::Stopped);
        }
    }

    /// Handles messages from other nodes. Leaves `messages` empty.
    pub fn receive(&mut self, messages: &mut Vec<Message>) {
        if messages.is_empty() {
            return;
        }
        for message in messages.drain(..) {
            if self.core.may_write() {
                let result = self.core.driver.receive(&message, &mut self.core.store);
                self.core.stop_on_error(result);
            } else {
                // Dropped messages are sent again.
                self.receive_while_full(&message);
            }
            if self.core.store.pushed_bytes() > APPEND_BYTES_MAX {
                self.core.append();
            }
        }
        self.core.append();
    }

    /// The disk is full. Handles a message that confirms this leader and changes nothing, since reads wait for it.
    fn receive_while_full(&mut self, message: &Message) {
        let group = self.core.driver.group(message.group).filter(|group| group.own() == message.to);
        let is_confirmed = group.is_some_and(|group| group.is_confirmed_by(&message.body));
        if self.core.failed.is_none() && is_confirmed {
            self.core.step_without_write(|driver, store| driver.receive(message, store));
        }
    }

    /// Gives every proposal its position, appends all of them, applies what may be applied, and answers. Leaves
    /// `proposals` empty.
    pub fn step(&mut self, proposals: &mut Vec<Proposal>) {
        let mut waiting = proposals.drain(..).peekable();
        while waiting.peek().is_some() {
            if let Err(refusal) = self.core.check_accepts() {
                return self.refuse(waiting, &refusal);
            }
            let mut bytes = 0;
            while bytes < APPEND_BYTES_MAX
                && let Some(proposal) = waiting.next()
            {
                if let Work::Entry(entry, _) = &proposal.work {
                    bytes += entry.len();
                }
                let result = self.core.driver.propose(proposal, &mut self.core.store);
                self.core.stop_on_error(result);
            }
            let result = self.core.driver.order(&mut self.core.store);
            self.core.stop_on_error(result);
            self.core.append();
        }
    }

    /// Refuses the proposals. A full disk does not prevent reads.
    fn refuse(&mut self, proposals: impl Iterator<Item = Proposal>, refusal: &Refusal) {
        let mut has_reads = false;
        for proposal in proposals {
            if *refusal == Refusal::Full && matches!(proposal.work, Work::Read) {
                has_reads = true;
                let result = self.core.driver.propose(proposal, &mut self.core.store);
                self.core.stop_on_error(result);
            } else {
                (proposal.done)(Err(refusal.clone().into()));
            }
        }
        if has_reads {
            self.core.step_without_write(|driver, store| driver.order(store));
        }
    }

    /// Appends, fsyncs on this thread, and answers; [`Core::sync_now`].
    #[cfg(test)]
    pub fn sync_now(&mut self) {
        self.core.sync_now();
    }

    /// The fsync that should start now, if one is due. Pass it to [`Runner::end_sync`] when it has run.
    pub fn begin_sync(&mut self) -> Option<SyncJob> {
        self.core.begin_sync()
    }

    /// An fsync has ended. The entries that it covers are committed, applied and answered. If it failed, the log stops.
    pub fn end_sync(&mut self, job: SyncJob, result: std::io::Result<()>) {
        self.core.end_sync(job, result);
    }

    /// How many hard proposals may arrive before they are worth a step.
    pub fn hard_proposals_per_step(&self) -> usize {
        self.core.hard_proposals_per_step()
    }

    /// Whether a step does nothing that is known to take long: it begins no segment, and the disk is not full.
    pub fn may_be_quick(&self) -> bool {
        self.core.failed.is_none() && self.core.full.is_none() && self.core.store.has_room()
    }

    /// Whether an fsync is running.
    pub fn is_syncing(&self) -> bool {
        self.core.sync_running
    }

    /// The time since which the disk is full, if it is.
    pub fn full_since(&self) -> Option<Nanos> {
        Some(self.core.full?.since)
    }

    /// Does the work that has fallen due.
    pub fn tick(&mut self) {
        let now = self.core.environment.clock.now();
        if self.core.full.is_some_and(|full| full.tried.after(self.policy.soft_wait) <= now) {
            self.core.retry_full();
        }
        if self.mark_due().is_some_and(|due| due <= now) {
            // A mark distinguishes damage to durable bytes from a torn tail.
            self.core.store.push_mark();
            self.core.append();
        }
        if self.core.driver.tick_due().is_some_and(|due| due <= now) && self.core.may_write() {
            let result = self.core.driver.tick(now, &mut self.core.store);
            self.core.stop_on_error(result);
            self.core.append();
        }
    }

    /// When the next work falls due if nothing arrives.
    pub fn due(&self) -> Option<Nanos> {
        let sync = self.core.driver.sync_due().filter(|_| !self.core.sync_running);
        let full = self.core.full.map(|full| full.tried.after(self.policy.soft_wait));
        let tick = self.core.driver.tick_due().filter(|_| self.core.full.is_none());
        let flush = self.release.due();
        let due = [sync, full, self.mark_due(), tick, flush].into_iter().flatten().min();
        due.filter(|_| self.core.failed.is_none())
    }

    fn mark_due(&self) -> Option<Nanos> {
        let idle = self.core.driver.sync_due().is_none() && self.core.full.is_none();
        let wanted = idle && self.core.failed.is_none() && self.core.store.wants_mark();
        wanted.then(|| self.core.last_sync.after(self.policy.soft_wait))
    }

    /// Work in the engine after which segments can be deleted, if the log has grown enough for it. Run it on any thread,
    /// then pass it to [`Runner::end_flush`].
    pub fn begin_flush(&mut self) -> Option<FlushJob> {
        if self.core.failed.is_some() {
            return None;
        }
        let may_begin_segment = self.core.may_begin_segment();
        let begun = self.release.begin(&LogState {
            now: self.core.environment.clock.now(),
            size: self.core.store.size(),
            appended: self.core.stats.append_bytes,
            may_begin_segment,
        });
        let task = begun?;
        if may_begin_segment && task.ends_segment() {
            self.core.end_segment();
        }
        let mut settled = self.core.driver.settled();
        for (group, until) in self.core.removed_groups.settled(self.core.driver.last_synced()) {
            // The group may be open again, as another replica.
            settled.entry(group).or_insert(until);
        }
        let needed_after = self.core.driver.needed_after();
        Some(FlushJob::new(task, settled, needed_after))
    }

    /// The work is done, or has failed. Deletes the segments that are no longer needed.
    pub fn end_flush(&mut self, job: &FlushJob, result: Result<(), ApplyError>) {
        self.release.end();
        if self.core.failed.is_some() {
            return;
        }
        if let Err(ApplyError(cause)) = result {
            return self.core.fail(&Interruption::Apply(cause));
        }
        let segments_before = self.core.store.size().segments;
        let removed = self.core.removed_groups.groups(self.core.driver.last_synced());
        let flushed = job.flushed(&self.core.store);
        let unflushed_bytes = self.core.store.unflushed_bytes(&flushed, &removed);
        match self.core.store.delete_flushed(&job.unneeded(flushed), &removed) {
            Ok(compacted) => self.core.driver.compact(&compacted),
            Err(cause) => return self.core.fail(&Interruption::Disk(cause.to_string())),
        }
        let size = self.core.store.size();
        self.core.stats.segments_deleted += segments_before - size.segments;
        self.release.note(job, size.bytes, unflushed_bytes);
    }

    /// Closes the log: makes everything durable, with a mark at the end.
    pub fn finish(&mut self) {
        self.core.sync_now();
        if self.core.failed.is_none() && self.core.full.is_none() {
            self.core.store.push_mark();
            self.core.append();
            self.core.sync_now();
            if let Err(cause) = self.core.store.write_high_water_mark() {
                tracing::warn!(
                    "could not write the high-water mark; a truncated log would not be detected: {cause}"
                );
            }
        }
        self.core.driver.abandon(&Interruption::Closed);
    }

    /// Counters since the log was opened.
    pub fn stats(&self) -> LogStats {
        let mut stats = self.core.stats.clone();
        let size = self.core.store.size();
        stats.segments = size.segments;
        stats.disk_bytes = size.bytes;
        stats.groups = self.core.driver.open_groups() as u64;
        stats
    }

    /// The term in which the local replica was elected, if it was.
    #[cfg(test)]
    pub fn elected(&self, id: GroupId) -> Option<crate::lsn::Term> {
        self.core.driver.group(id)?.elected()
    }

    /// Why the log has stopped, if it has.
    pub fn failure(&self) -> Option<&Interruption> {
        self.core.failed.as_ref()
    }
}
