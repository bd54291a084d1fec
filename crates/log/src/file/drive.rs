//! Access to the log's state: a lock, held by the log thread or by a proposer that carries out a step itself.
//!
//! A step for a few soft entries takes less time than waking the log thread and being woken by it. So a proposer that
//! promises to come back posts its entries without waking the log thread, and then drives the log itself for all entries
//! in the inbox. If another thread holds the lock just then, that thread looks at the inbox again once it has
//! released the lock.//! Entries are taken out of the inbox only under the lock, so they keep their order. The log thread carries out whatever
//! may take long or involves more than soft entries.

use std::sync::Arc;
use std::time::Duration;

use io::task::{self, Thread};
use io::{Clock, Nanos};
use parking_lot::{Mutex, MutexGuard};

use super::inbox::{Contents, Inbound, Inbox, WaitPlan};
use super::log_health::LogHealth;
use super::runner::Runner;
use super::store::FileStore;
use crate::batch_window::BatchWindow;
use crate::contract::Applier;
use crate::proposal::Proposal;

/// A proposer drives the log at most this many times in a row before it leaves new entries to the log thread.
const DRIVES_MAX: usize = 4;
/// A step that took longer was delayed by the disk or the engine. Shorter delays are normal on a busy machine, where a
/// thread is preempted for some milliseconds now and then.
const SLOW_STEP: Duration = Duration::from_millis(25);
/// After a slow step, proposers leave all steps to the log thread for this long.
const LOG_THREAD_ONLY: Duration = Duration::from_millis(250);

/// The inbox and the state of the log, shared by the log thread and proposers.
pub(super) struct SharedLog {
    pub inbox: Inbox,
    pub health: Arc<LogHealth>,
    /// Locked during a step; `None` when the log thread has ended.
    state: Mutex<Option<DriveState>>,
}

/// The state that a step works with.
pub(super) struct DriveState {
    pub runner: Runner<FileStore>,
    /// The input of the current step.
    pub inbound: Inbound,
    pub batch_window: BatchWindow,
    pub applier: Arc<dyn Applier>,
    pub clock: Arc<dyn Clock>,
    pub flush_thread: Option<Thread>,
    health: Arc<LogHealth>,
    /// Set during a step. If it is still set when the lock is taken, the step has panicked and the state is unusable.
    in_step: bool,
    /// Until then, proposers leave steps to the log thread.
    log_thread_only_until: Nanos,
}

/// The next action of a proposer.
enum Next {
    DriveAgain,
    Return,
    WakeLogThread,
}

impl SharedLog {
    /// A log carried out by `runner`, which applies with `applier`.
    pub fn new(
        runner: Runner<FileStore>,
        applier: Arc<dyn Applier>,
        clock: Arc<dyn Clock>,
    ) -> Arc<SharedLog> {
        let health = Arc::<LogHealth>::default();
        let state = DriveState {
            health: Arc::clone(&health),
            runner,
            inbound: Inbound::default(),
            batch_window: BatchWindow::default(),
            applier,
            clock,
            flush_thread: None,
            in_step: false,
            log_thread_only_until: Nanos::default(),
        };
        Arc::new(SharedLog { inbox: Inbox::default(), health, state: Mutex::new(Some(state)) })
    }

    /// Waits for the lock. It holds `None` when the log has ended or a step has panicked.
    pub fn lock(&self) -> MutexGuard<'_, Option<DriveState>> {
        let mut state = task::lock(&self.state);
        if state.as_ref().is_some_and(|state| state.in_step) {
            *state = None;
        }
        state
    }

    /// Carries out the soft entries in the inbox, unless another thread holds the lock, which then does so.
    pub fn drive(&self) {
        for _ in 0..DRIVES_MAX {
            match self.drive_once() {
                Next::DriveAgain => {}
                Next::Return => return,
                Next::WakeLogThread => break,
            }
        }
        self.inbox.wake_log_thread();
    }

    fn drive_once(&self) -> Next {
        // The holder of the lock looks at the inbox after it has released the lock.
        let Some(mut guard) = self.state.try_lock() else { return Next::Return };
        let Some(state) = guard.as_mut().filter(|state| !state.in_step) else { return Next::Return };
        if !state.proposers_may_drive() {
            drop(guard);
            return match self.inbox.is_empty() {
                true => Next::Return,
                false => Next::WakeLogThread,
            };
        }
        match self.inbox.take_soft(&mut state.inbound.proposals) {
            Contents::Empty => {
                drop(guard);
                return match self.inbox.is_empty() {
                    true => Next::Return,
                    false => Next::DriveAgain,
                };
            }
            Contents::Other => return Next::WakeLogThread,
            Contents::SoftOnly => {}
        }
        let _close_on_panic = CloseOnPanic(&self.inbox);
        state.begin_step();
        let mut proposals = std::mem::take(&mut state.inbound.proposals);
        state.step(&mut proposals);
        state.inbound.proposals = proposals;
        state.end_step();
        let due = state.runner.due();
        drop(guard);
        match self.inbox.after_drive(due) {
            true => Next::Return,
            false => Next::DriveAgain,
        }
    }
}

impl DriveState {
    /// Whether the next step will be short, as far as can be known: it creates no file, and no step was slow lately.
    fn proposers_may_drive(&self) -> bool {
        self.runner.may_be_quick() && self.clock.now() >= self.log_thread_only_until
    }

    /// From here until the end of the step, a panic makes the state unusable.
    pub fn begin_step(&mut self) {
        self.health.set_step(Some(self.clock.now()));
        self.in_step = true;
    }

    /// The step has ended without a panic.
    pub fn end_step(&mut self) {
        self.health.set_step(None);
        self.health.set_full(self.runner.full_since());
        if let Some(cause) = self.runner.failure() {
            self.health.stop(self.clock.now(), cause);
        }
        self.in_step = false;
    }

    /// Carries out the proposals. If that is slow, proposers do not drive the log for a while.
    pub fn step(&mut self, proposals: &mut Vec<Proposal>) {
        let began = self.clock.now();
        self.runner.step(proposals);
        let ended = self.clock.now();
        if ended.since(began) > SLOW_STEP {
            self.log_thread_only_until = ended.after(LOG_THREAD_ONLY);
        }
    }

    /// How the log thread waits for its next step.
    pub fn wait_plan(&self) -> WaitPlan {
        let due = self.runner.due();
        WaitPlan {
            due,
            wait: due.map(|due| due.since(self.clock.now())),
            hard_wanted: self.runner.hard_proposals_per_step(),
            soft_wanted: self.batch_window.expected(),
        }
    }
}

/// Closes the inbox if a step panics, so that no caller waits for an answer that never comes.
struct CloseOnPanic<'a>(&'a Inbox);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}
