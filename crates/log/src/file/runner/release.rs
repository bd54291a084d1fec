//! When segments leave the log: as soon as the engine has made their entries durable, for whatever reason, and no other
//! replica needs them. The engine is flushed for this only when too much would be replayed after a crash, or the log has
//! become too long.

use std::collections::BTreeMap;

use io::Nanos;

use super::FlushPolicy;
use crate::contract::Applier;
use crate::error::ApplyError;
use crate::lsn::{GroupId, Lsn};
use crate::store::{Store, StoreSize};

/// The engine is asked for its durable positions whenever the log has grown by this part of the bytes that may be replayed.
const LOOKS_PER_REPLAY: u64 = 12;
/// The engine is not flushed at intervals for less than this part of the bytes that may be replayed: merging many small files
/// into a large one would write many times their bytes.
const FLUSHES_PER_REPLAY: u64 = 12;
/// The same when the log is idle.
const IDLE_FLUSHES_PER_REPLAY: u64 = 192;
/// The same after a group was closed.
const CLOSINGS_PER_REPLAY: u64 = 24;
/// The log is idle when nothing was appended for this part of the interval between flushes.
const IDLE_DIVISOR: u32 = 6;

/// What the engine does before segments are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// It names the positions that it has made durable by itself.
    Look,
    /// It makes everything durable, since too much would be replayed, or has waited too long, or groups were
    /// closed, whose entries no longer count.
    Flush,
    /// The same, since the log is too long: entries that other replicas may need are deleted, too.
    Shorten,
}

impl Task {
    /// Whether the last segment is ended, so that it can be deleted as well.
    pub fn ends_segment(self) -> bool {
        self != Task::Look
    }
}

/// The state of a log, for [`Release::begin`].
pub(super) struct LogState {
    pub now: Nanos,
    pub size: StoreSize,
    /// Bytes appended since the log was opened.
    pub appended: u64,
    pub may_begin_segment: bool,
}

/// Work in the engine, and the positions that may leave the log once it is done.
pub(crate) struct FlushJob {
    task: Task,
    settled: BTreeMap<GroupId, u64>,
    /// The positions after which other replicas may need entries.
    needed_after: BTreeMap<GroupId, u64>,
    /// The durable positions of the engine's rows, if it was asked for them.
    durable: BTreeMap<GroupId, Lsn>,
}

impl FlushJob {
    pub(super) fn new(
        task: Task,
        settled: BTreeMap<GroupId, u64>,
        needed_after: BTreeMap<GroupId, u64>,
    ) -> FlushJob {
        FlushJob { task, settled, needed_after, durable: BTreeMap::new() }
    }

    /// Does the work. Waits for the engine.
    pub fn run(&mut self, applier: &dyn Applier) -> Result<(), ApplyError> {
        if self.task != Task::Look {
            return applier.flush();
        }
        let groups: Vec<GroupId> = self.settled.keys().copied().collect();
        self.durable = groups.iter().copied().zip(applier.durable(&groups)).collect();
        Ok(())
    }

    /// The position of each group up to which the engine has everything durably.
    pub(super) fn flushed(&self, store: &impl Store) -> BTreeMap<GroupId, u64> {
        let mut flushed = self.settled.clone();
        if self.task == Task::Look {
            for (group, settled) in &mut flushed {
                let durable = self.durable.get(group).map_or(0, |lsn| lsn.0);
                // Entries that are not proposals change no rows.
                let until = store.group(*group).map(|group| group.outline.unchanged_until(durable, *settled));
                *settled = until.unwrap_or(durable).min(*settled);
            }
        }
        flushed
    }

    /// The same without entries that other replicas may need.
    pub(super) fn unneeded(&self, mut flushed: BTreeMap<GroupId, u64>) -> BTreeMap<GroupId, u64> {
        if self.task != Task::Shorten {
            for (group, needed_after) in &self.needed_after {
                flushed.entry(*group).and_modify(|until| *until = (*until).min(*needed_after));
            }
        }
        flushed
    }
}

/// Decides when the engine is asked, and when it is flushed.
pub(super) struct Release {
    policy: FlushPolicy,
    running: bool,
    /// The length of the log at which it is shortened.
    shorten_at: u64,
    /// The bytes to be replayed at which the engine is flushed.
    flush_at: u64,
    /// The bytes that would be replayed after a crash, as of the last job, in whole segments.
    unflushed: u64,
    /// The engine is asked when this many bytes were appended.
    look_at: u64,
    /// Whether groups were closed since the engine was asked last.
    closed: bool,
    /// The beginning of the last flush, and the bytes that were appended by then.
    flushed: (Nanos, u64),
    /// The last bytes that were appended, and when that was noticed.
    appended: (Nanos, u64),
}

impl Release {
    pub fn new(policy: FlushPolicy, now: Nanos) -> Release {
        Release {
            policy,
            running: false,
            shorten_at: policy.log_bytes_max,
            flush_at: policy.replay_bytes_max,
            unflushed: 0,
            look_at: policy.replay_bytes_max / LOOKS_PER_REPLAY,
            closed: false,
            flushed: (now, 0),
            appended: (now, 0),
        }
    }

    /// A group was closed.
    pub fn note_closed(&mut self) {
        self.closed = true;
    }

    /// What is to be done now. [`Release::end`] must be called then.
    pub fn begin(&mut self, log: &LogState) -> Option<Task> {
        if self.appended.1 != log.appended {
            self.appended = (log.now, log.appended);
        }
        let has_several = log.size.segments > 1;
        // Ending the last segment and a flush are not worth less.
        self.closed &= has_several || log.size.bytes >= self.policy.replay_bytes_max / CLOSINGS_PER_REPLAY;
        let task = match () {
            () if self.running => return None,
            () if has_several && log.size.bytes >= self.shorten_at => Task::Shorten,
            () if self.unflushed >= self.flush_at => Task::Flush,
            () if self.due().is_some_and(|due| due <= log.now) => Task::Flush,
            () if self.closed && log.may_begin_segment => Task::Flush,
            () if has_several && log.appended >= self.look_at => Task::Look,
            () => return None,
        };
        self.running = true;
        self.look_at = log.appended + self.policy.replay_bytes_max / LOOKS_PER_REPLAY;
        if task != Task::Look {
            self.closed &= !log.may_begin_segment;
            self.flushed = (log.now, log.appended);
        }
        Some(task)
    }

    /// When the engine is flushed if nothing else happens.
    pub fn due(&self) -> Option<Nanos> {
        let ((flushed_at, flushed), (appended_at, appended)) = (self.flushed, self.appended);
        let FlushPolicy { replay_bytes_max, flush_interval, .. } = self.policy;
        let exceeds = |parts: u64| !self.running && appended - flushed >= replay_bytes_max / parts;
        let regular = exceeds(FLUSHES_PER_REPLAY).then(|| flushed_at.after(flush_interval));
        let idle = exceeds(IDLE_FLUSHES_PER_REPLAY).then(|| appended_at.after(flush_interval / IDLE_DIVISOR));
        [regular, idle].into_iter().flatten().min()
    }

    /// The job has ended.
    pub fn end(&mut self) {
        self.running = false;
    }

    /// The job has succeeded: the log has `log_bytes` now, of which `unflushed` would be replayed.
    pub fn note(&mut self, job: &FlushJob, log_bytes: u64, unflushed: u64) {
        let FlushPolicy { log_bytes_max, replay_bytes_max, .. } = self.policy;
        self.unflushed = unflushed;
        if job.task == Task::Look {
            return;
        }
        // If a group holds segments back, the engine is not flushed again for every entry.
        self.flush_at = replay_bytes_max.max(unflushed + replay_bytes_max / 2);
        if job.task == Task::Shorten {
            self.shorten_at = log_bytes_max.max(log_bytes + log_bytes_max / 8);
        }
    }
}
