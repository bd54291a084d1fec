//! The write path of the log: append, fsync, apply, answer; and its two failures, a full disk and a broken one.

use std::sync::Arc;

use io::{Clock, Nanos, Random};

use super::removed_groups::RemovedGroups;
use super::{APPENDS_DURING_SYNC, SyncJob};
use crate::contract::{Applier, GroupObserver, Transport};
use crate::driver::{Driver, GroupEvent};
use crate::error::{ApplyError, Interruption, LogError, Refusal};
use crate::lsn::GroupId;
use crate::member::PeerId;
use crate::record::Record;
use crate::stats::LogStats;
use crate::store::{Store, StoreError};

/// Everything outside the log that it uses.
pub(crate) struct Environment {
    pub applier: Arc<dyn Applier>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub transport: Arc<dyn Transport>,
    pub observer: Arc<dyn GroupObserver>,
}

#[derive(Clone, Copy)]
pub(super) struct DiskFull {
    pub since: Nanos,
    /// The time of the last attempt to write.
    pub tried: Nanos,
}

/// The driver, the store and the engine, connected.
pub(super) struct Core<S> {
    pub driver: Driver,
    pub store: S,
    pub environment: Environment,
    pub stats: LogStats,
    pub full: Option<DiskFull>,
    pub failed: Option<Interruption>,
    pub removed_groups: RemovedGroups,
    pub sync_running: bool,
    /// The end of the last fsync.
    pub last_sync: Nanos,
}

impl<S: Store> Core<S> {
    /// Whether a step can write something that is not a proposal.
    pub fn may_write(&mut self) -> bool {
        let idle = self.store.pushed_bytes() == 0;
        self.failed.is_none() && self.full.is_none() && (!idle || self.make_room().is_ok())
    }

    /// Whether new proposals can be accepted. Checked before anything of them is written, so a refusal is definite.
    pub fn check_accepts(&mut self) -> Result<(), Refusal> {
        if self.failed.is_some() {
            return Err(Refusal::Stopped);
        }
        if self.full.is_some() {
            return Err(Refusal::Full);
        }
        self.make_room()
    }

    /// Begins a new segment, if the last one has grown enough.
    pub fn make_room(&mut self) -> Result<(), Refusal> {
        // A new segment begins with an fsync of the old one, and only one fsync may run at a time. Until then the segment
        // grows a little longer.
        if self.sync_running {
            return Ok(());
        }
        match self.store.make_room() {
            Ok(()) => Ok(()),
            Err(StoreError::Full) => {
                self.note_full();
                Err(Refusal::Full)
            }
            Err(StoreError::Disk(cause)) => {
                self.fail(&Interruption::Disk(cause.to_string()));
                Err(Refusal::Stopped)
            }
        }
    }

    /// Whether a segment can be begun now.
    pub fn may_begin_segment(&self) -> bool {
        !self.sync_running && self.failed.is_none() && self.full.is_none() && self.store.pushed_bytes() == 0
    }

    /// Begins a new segment early, so that the last one can be deleted. A full disk does not matter.
    pub fn end_segment(&mut self) {
        if let Err(StoreError::Disk(cause)) = self.store.end_segment() {
            self.fail(&Interruption::Disk(cause.to_string()));
        }
    }

    fn note_full(&mut self) {
        let tried = self.environment.clock.now();
        self.full = Some(DiskFull { since: self.full.map_or(tried, |full| full.since), tried });
    }

    /// Checks whether a full disk has space again.
    pub fn retry_full(&mut self) {
        if self.store.pushed_bytes() > 0 {
            self.append();
        } else if self.sync_running {
            // No segment can begin during an fsync, so the attempt would show nothing.
            self.note_full();
        } else if self.make_room().is_ok() {
            self.full = None;
        }
    }

    /// Writes the pushed records, then applies and answers.
    pub fn append(&mut self) {
        if self.failed.is_some() {
            return;
        }
        if cfg!(feature = "ack-before-append") {
            self.driver.answer();
            // So that a kill often falls between the answer and the append.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        if self.store.pushed_bytes() > 0 {
            self.driver.push_commits(&mut self.store);
        }
        let bytes = self.store.pushed_bytes();
        if bytes > 0 {
            let now = self.environment.clock.now();
            io::failpoint("log.append");
            match self.store.write() {
                Ok(()) => {}
                Err(StoreError::Full) => return self.note_full(),
                Err(StoreError::Disk(cause)) => return self.fail(&Interruption::Disk(cause.to_string())),
            }
            io::failpoint("log.appended");
            self.full = None;
            self.stats.appends += self.driver.appended(now);
            self.stats.append_bytes += bytes as u64;
            self.stats.writes += 1;
        } else {
            self.driver.nothing_pushed();
        }
        self.apply();
        self.deliver();
    }

    /// Takes a step that writes nothing, then applies, answers, and sends the messages of the step. Earlier messages, which
    /// are about unwritten records, wait for those.
    pub fn step_without_write(&mut self, step: impl FnOnce(&mut Driver, &mut S) -> Result<(), LogError>) {
        let waiting = std::mem::take(self.driver.messages());
        let result = step(&mut self.driver, &mut self.store);
        self.stop_on_error(result);
        if self.failed.is_none() {
            self.apply();
        }
        self.deliver();
        self.driver.messages().splice(..0, waiting);
        // Nothing is appended before there is space: each group is listed once, however many steps it takes.
        self.driver.appending.sort_unstable();
        self.driver.appending.dedup();
    }

    fn apply(&mut self) {
        let batch = match self.driver.take_applicable(&self.store) {
            Ok(batch) => batch,
            Err(cause) => return self.fail(&Interruption::Disk(cause.to_string())),
        };
        if !batch.is_empty()
            && let Err(ApplyError(cause)) = self.environment.applier.apply(batch)
        {
            return self.fail(&Interruption::Apply(cause));
        }
        io::failpoint("log.applied");
        let answered = self.driver.answer();
        io::failpoint("log.answered");
        self.stats.acks_hard += answered.hard;
        self.stats.acks_soft += answered.soft;
    }

    /// Sends the messages that may be sent, and notifies the observer.
    fn deliver(&mut self) {
        if self.failed.is_some() {
            return;
        }
        let changes = self.driver.take_leadership_changes();
        self.stats.elected += changes.elected;
        self.stats.deposed += changes.deposed;
        let (events, messages) = self.driver.take_events();
        if !messages.is_empty() {
            self.environment.transport.send(messages);
        }
        for event in events {
            let observer = &self.environment.observer;
            match event {
                GroupEvent::RoleChanged(id, role) => observer.role_changed(id, role),
                GroupEvent::VotersChanged(id, voters) => observer.voters_changed(id, &voters),
                GroupEvent::SnapshotNeeded(id, to) => observer.snapshot_needed(id, to),
                GroupEvent::RowsNeeded(id) => observer.rows_needed(id),
                GroupEvent::Removed(id, peer) => self.remove_replica(id, peer),
            }
        }
    }

    /// Closes a replica that its group has removed. The owner is notified once the tombstone is durable.
    fn remove_replica(&mut self, id: GroupId, peer: PeerId) {
        if self.driver.group(id).is_none() {
            return;
        }
        self.close(id, &Record::Removed { group: id, peer: peer.0 });
        self.removed_groups.report_later(id, self.driver.next_append());
        self.append();
    }

    /// Closes a group, and pushes its closing record.
    pub fn close(&mut self, id: GroupId, record: &Record<&[u8]>) {
        let settled = self.driver.group(id).map_or(0, |group| group.settled());
        self.removed_groups.add(id, self.driver.next_append(), settled);
        self.driver.close(id, &Interruption::Closed);
        self.store.push(record);
    }

    /// Begins the fsync that is due, if one is.
    pub fn begin_sync(&mut self) -> Option<SyncJob> {
        if self.sync_running || self.failed.is_some() {
            return None;
        }
        let started = self.environment.clock.now();
        let wanted = self.driver.wants_sync(started)?;
        self.sync_running = true;
        Some(SyncJob { task: self.store.begin_sync(), wanted, started })
    }

    /// An fsync has ended. The entries that it covers are committed, applied and answered. If it failed, the log stops.
    pub fn end_sync(&mut self, job: SyncJob, result: std::io::Result<()>) {
        self.sync_running = false;
        if self.failed.is_some() {
            return;
        }
        if let Err(cause) = result {
            return self.fail(&Interruption::Disk(cause.to_string()));
        }
        let SyncJob { task, wanted, started } = job;
        self.last_sync = self.environment.clock.now();
        let took = self.last_sync.since(started);
        self.stats.fsyncs += 1;
        self.stats.fsync_us += took.as_micros() as u64;
        self.stats.count_commit(wanted.entries);
        self.store.end_sync(task.through());
        let synced = self.driver.synced(wanted, took, &mut self.store);
        self.stop_on_error(synced);
        // Writes what consensus wants stored now, and sends its messages.
        self.append();
        for id in self.removed_groups.take_reports(self.driver.last_synced()) {
            self.environment.observer.removed(id);
        }
        if self.failed.is_none() && self.full.is_none() {
            // If the disk is full, the next proposal is refused.
            let _ = self.make_room();
        }
    }

    /// Appends, fsyncs on this thread, and answers all proposals that this makes durable. No other fsync may be running:
    /// of two fsyncs of one file, only one reports a failure.
    pub fn sync_now(&mut self) {
        assert!(!self.sync_running, "invariant: the caller has waited for the running fsync");
        self.append();
        if self.failed.is_some() || self.full.is_some() {
            return;
        }
        let wanted = self.driver.sync_all();
        let started = self.environment.clock.now();
        let job = SyncJob { task: self.store.begin_sync(), wanted, started };
        let result = job.run();
        self.end_sync(job, result);
    }

    /// How many hard proposals may arrive before they are worth a step. While an fsync is running, or the next one waits
    /// for more entries, waking up for each is a waste. A failed log refuses each at once, since nothing else wakes it.
    pub fn hard_proposals_per_step(&self) -> usize {
        if self.failed.is_some() {
            return 1;
        }
        match self.sync_running {
            true => APPENDS_DURING_SYNC,
            false => (self.driver.hard_entries_missing() as usize).clamp(1, APPENDS_DURING_SYNC),
        }
    }

    pub fn stop_on_error(&mut self, result: Result<(), LogError>) {
        if let Err(cause) = result {
            self.fail(&Interruption::Disk(cause.to_string()));
        }
    }

    /// Stops the log.
    pub fn fail(&mut self, cause: &Interruption) {
        tracing::error!(%cause, "log has stopped");
        self.driver.abandon(cause);
        self.failed = Some(cause.clone());
        // A stopped log does not continue when there is space again.
        self.full = None;
    }
}
