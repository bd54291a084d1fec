//! The log thread, and the sync thread that waits for the disk.
//!
//! The log thread carries out all steps that no proposer carries out, and whatever may take long. Appends continue while
//! an fsync is running on the sync thread.

use std::sync::Arc;

use io::Clock;
use io::task::{self, Receiver, Sender, Thread};

use super::drive::{DriveState, SharedLog};
use super::inbox::{Command, GroupChange, Inbound};
use super::runner::{FlushJob, SyncJob};
use crate::error::{Interruption, LogError};
use crate::lsn::GroupId;

/// Starts both threads.
pub(super) fn start(log: &Arc<SharedLog>, clock: Arc<dyn Clock>) -> Result<Thread, LogError> {
    let (to_sync, from_log) = task::channel();
    let sync_log = Arc::clone(log);
    let sync_thread = task::spawn("log-sync", move || run_syncs(&from_log, &sync_log))?;
    let thread = LogThread { log: Arc::clone(log), clock, to_sync, sync_thread: Some(sync_thread) };
    Ok(task::spawn("log", move || thread.run())?)
}

/// Runs one fsync after the other until the log thread has ended.
fn run_syncs(from_log: &Receiver<SyncJob>, log: &SharedLog) {
    while let Ok(job) = from_log.recv() {
        log.health.set_sync(Some(job.started()));
        let result = job.run();
        log.health.set_sync(None);
        log.inbox.post(|inbound| inbound.synced = Some((job, result)));
    }
}

/// The log thread, with the state that it does not share.
struct LogThread {
    log: Arc<SharedLog>,
    clock: Arc<dyn Clock>,
    to_sync: Sender<SyncJob>,
    sync_thread: Option<Thread>,
}

impl LogThread {
    fn run(self) {
        let mut plan = self.log.lock().as_ref().map(DriveState::wait_plan).unwrap_or_default();
        loop {
            self.log.inbox.wait(&plan);
            let mut guard = self.log.lock();
            let Some(state) = guard.as_mut() else { return };
            self.log.inbox.take(&mut state.inbound);
            state.begin_step();
            if self.step(state) {
                self.finish(state);
                return;
            }
            state.end_step();
            plan = state.wait_plan();
        }
    }

    /// One step for everything in the inbox; returns whether it is the last.
    fn step(&self, state: &mut DriveState) -> bool {
        let mut inbound = std::mem::take(&mut state.inbound);
        state.batch_window.note_batch(inbound.soft(), state.clock.now());
        end_tasks(state, &mut inbound);
        state.runner.receive(&mut inbound.messages);
        for request in inbound.requests.drain(..) {
            state.runner.request(request);
        }
        state.step(&mut inbound.proposals);
        for command in inbound.commands.drain(..) {
            self.carry_out(state, command);
        }
        let stop = std::mem::take(&mut inbound.stop);
        state.inbound = inbound;
        state.runner.tick();
        self.begin_tasks(state);
        self.publish(state);
        stop
    }

    fn begin_tasks(&self, state: &mut DriveState) {
        if let Some(job) = state.runner.begin_sync() {
            // The sync thread lives as long as this sender.
            drop(self.to_sync.send(job));
        }
        if let Some(job) = state.runner.begin_flush() {
            self.flush(state, job);
        }
    }

    /// Works in the engine on another thread, while entries are applied as before.
    fn flush(&self, state: &mut DriveState, mut job: FlushJob) {
        let (applier, log) = (Arc::clone(&state.applier), Arc::clone(&self.log));
        let run = move || {
            let result = job.run(&*applier);
            log.inbox.post(|inbound| inbound.flushed = Some((job, result)));
        };
        // The previous flush thread has ended: its result arrived first.
        state.flush_thread = match task::spawn("log-flush", run) {
            Ok(thread) => Some(thread),
            Err(cause) => {
                tracing::error!(%cause, "could not start a thread to flush the engine; the log keeps growing");
                None
            }
        };
    }

    fn carry_out(&self, state: &mut DriveState, command: Command) {
        // The caller waits for the answer. If it is gone, the answer is dropped.
        match command {
            Command::Group(id, change, reply) => {
                if !matches!(change, GroupChange::Open(..)) {
                    self.wait_for_sync(state);
                }
                let runner = &mut state.runner;
                drop(reply.send(match change {
                    GroupChange::Open(applied, initial) => runner.open_group(id, applied, &initial),
                    GroupChange::Close => runner.close_group(id),
                    GroupChange::Leave => runner.leave_group(id),
                    GroupChange::BeginRestore => runner.begin_restore(id),
                    GroupChange::FinishRestore(base) => runner.finish_restore(id, &base),
                    GroupChange::ResetMembers(members) => runner.reset_members(id, members),
                }));
            }
            Command::Statuses(ids, reply) => {
                let status = |id: &GroupId| state.runner.group_status(*id).ok();
                drop(reply.send(Ok(ids.iter().map(status).collect())));
            }
        }
    }

    /// Waits until no fsync is running.
    fn wait_for_sync(&self, state: &mut DriveState) {
        while state.runner.is_syncing() {
            if let Some((job, result)) = self.log.inbox.take_synced() {
                state.runner.end_sync(job, result);
            }
        }
    }

    fn publish(&self, state: &DriveState) {
        *self.log.inbox.stats.lock() = state.runner.stats();
    }

    fn finish(&self, state: &mut DriveState) {
        self.wait_for_sync(state);
        state.runner.finish();
        self.publish(state);
        if let Some(thread) = state.flush_thread.take() {
            thread.join();
        }
    }
}

fn end_tasks(state: &mut DriveState, inbound: &mut Inbound) {
    if let Some((job, result)) = inbound.synced.take() {
        state.runner.end_sync(job, result);
    }
    if let Some((job, result)) = inbound.flushed.take() {
        state.runner.end_flush(&job, result);
    }
}

impl Drop for LogThread {
    /// Also runs when the thread panics, so that no caller waits for an answer that never comes.
    fn drop(&mut self) {
        self.log.inbox.close();
        // After an orderly end this is not read any more.
        self.log.health.stop(self.clock.now(), &Interruption::Closed);
        // Dropping the state answers the callers that wait in it.
        drop(self.log.lock().take());
        let (hung_up, _) = task::channel();
        self.to_sync = hung_up;
        if let Some(thread) = self.sync_thread.take() {
            thread.join();
        }
    }
}
