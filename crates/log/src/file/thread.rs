//! The log thread, and the one that waits for the disk.
//!
//! The log thread has the turns that nobody else takes, and does whatever may take long. Appends go on
//! while an fsync is under way on the sync thread.

use std::sync::Arc;

use io::Clock;
use io::task::{self, Receiver, Sender, Thread};

use super::inbox::{Arrived, Change, Command};
use super::runner::{Flushing, Syncing};
use super::turns::{State, Turns};
use crate::error::{Interruption, LogError};
use crate::lsn::GroupId;

/// Starts both threads.
pub(super) fn start(turns: &Arc<Turns>, clock: Arc<dyn Clock>) -> Result<Thread, LogError> {
    let (to_sync, from_log) = task::channel();
    let sync_turns = Arc::clone(turns);
    let sync_thread = task::spawn("log-sync", move || sync_until_hung_up(&from_log, &sync_turns))?;
    let thread = LogThread { turns: Arc::clone(turns), clock, to_sync, sync_thread: Some(sync_thread) };
    Ok(task::spawn("log", move || thread.run())?)
}

/// Runs one fsync after the other until the log thread is gone.
fn sync_until_hung_up(from_log: &Receiver<Syncing>, turns: &Turns) {
    while let Ok(syncing) = from_log.recv() {
        turns.pulse.sync(Some(syncing.started()));
        let result = syncing.run();
        turns.pulse.sync(None);
        turns.inbox.post(|arrived| arrived.synced = Some((syncing, result)));
    }
}

/// What the log thread holds beside what it shares.
struct LogThread {
    turns: Arc<Turns>,
    clock: Arc<dyn Clock>,
    to_sync: Sender<Syncing>,
    sync_thread: Option<Thread>,
}

impl LogThread {
    fn run(self) {
        let mut rest = self.turns.lock().as_ref().map(State::rest).unwrap_or_default();
        loop {
            self.turns.inbox.wait(&rest);
            let mut guard = self.turns.lock();
            let Some(state) = guard.as_mut() else { return };
            self.turns.inbox.take(&mut state.arrived);
            state.begin_turn();
            if self.turn(state) {
                self.finish(state);
                return;
            }
            state.end_turn();
            rest = state.rest();
        }
    }

    /// One turn for everything that has arrived; whether it is the last.
    fn turn(&self, state: &mut State) -> bool {
        let mut arrived = std::mem::take(&mut state.arrived);
        state.company.turned(arrived.soft(), state.clock.now());
        end_tasks(state, &mut arrived);
        state.runner.receive(&mut arrived.messages);
        for ask in arrived.asks.drain(..) {
            state.runner.ask(ask);
        }
        state.order(&mut arrived.proposals);
        for command in arrived.commands.drain(..) {
            self.carry_out(state, command);
        }
        let stop = std::mem::take(&mut arrived.stop);
        state.arrived = arrived;
        state.runner.tick();
        self.begin_tasks(state);
        self.publish(state);
        stop
    }

    fn begin_tasks(&self, state: &mut State) {
        if let Some(syncing) = state.runner.begin_sync() {
            // The sync thread lives for as long as this sender.
            drop(self.to_sync.send(syncing));
        }
        if let Some(flushing) = state.runner.begin_flush() {
            self.flush(state, flushing);
        }
    }

    /// Flushes the engine on a thread of its own, while entries go on being applied.
    fn flush(&self, state: &mut State, flushing: Flushing) {
        let (applier, turns) = (Arc::clone(&state.applier), Arc::clone(&self.turns));
        let run = move || {
            let result = applier.flush();
            turns.inbox.post(|arrived| arrived.flushed = Some((flushing, result)));
        };
        // The one before has ended: its message came first.
        state.flush_thread = match task::spawn("log-flush", run) {
            Ok(thread) => Some(thread),
            Err(cause) => {
                tracing::error!(%cause, "no thread to flush the engine with; the log keeps growing");
                None
            }
        };
    }

    fn carry_out(&self, state: &mut State, command: Command) {
        // Whoever asked waits for the answer; a receiver that is gone wants none.
        match command {
            Command::Group(id, change, reply) => {
                if !matches!(change, Change::Open(..)) {
                    self.wait_for_sync(state);
                }
                let runner = &mut state.runner;
                drop(reply.send(match change {
                    Change::Open(applied, initial) => runner.open_group(id, applied, &initial),
                    Change::Close => runner.close_group(id),
                    Change::Leave => runner.leave_group(id),
                    Change::BeginRestore => runner.begin_restore(id),
                    Change::FinishRestore(base) => runner.finish_restore(id, &base),
                    Change::ResetMembers(members) => runner.reset_members(id, members),
                }));
            }
            Command::Statuses(ids, reply) => {
                let status = |id: &GroupId| state.runner.group_status(*id).ok();
                drop(reply.send(Ok(ids.iter().map(status).collect())));
            }
        }
    }

    /// Waits until no fsync is under way.
    fn wait_for_sync(&self, state: &mut State) {
        while state.runner.is_syncing() {
            if let Some((syncing, result)) = self.turns.inbox.take_synced() {
                state.runner.end_sync(syncing, result);
            }
        }
    }

    fn publish(&self, state: &State) {
        *self.turns.inbox.stats.lock() = state.runner.stats();
    }

    fn finish(&self, state: &mut State) {
        self.wait_for_sync(state);
        state.runner.finish();
        self.publish(state);
        if let Some(thread) = state.flush_thread.take() {
            thread.join();
        }
    }
}

fn end_tasks(state: &mut State, arrived: &mut Arrived) {
    if let Some((syncing, result)) = arrived.synced.take() {
        state.runner.end_sync(syncing, result);
    }
    if let Some((flushing, result)) = arrived.flushed.take() {
        state.runner.end_flush(&flushing, result);
    }
}

impl Drop for LogThread {
    /// Also when the thread panics: nobody may wait for an answer that never comes.
    fn drop(&mut self) {
        self.turns.inbox.close();
        // Where nothing was wrong nobody asks any more.
        self.turns.pulse.stop(self.clock.now(), &Interruption::Closed);
        // Whoever waits in it is told.
        drop(self.turns.lock().take());
        let (hung_up, _) = task::channel();
        self.to_sync = hung_up;
        if let Some(thread) = self.sync_thread.take() {
            thread.join();
        }
    }
}
