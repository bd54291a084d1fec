//! Who has the log's turn: its own thread, or a proposer who is awake anyway.
//!
//! A turn for a few soft entries takes less time than waking the log thread for it and being woken by
//! it. So a proposer who promises to come back lays its entries aside without waking anybody, and then
//! takes the turn itself, for all that lie there. If somebody else has it just then, that one looks again
//! before it goes. Entries are taken out of the inbox only by who has the turn, so they keep their order.
//! Whatever may take long, or is about more than soft entries, stays with the log thread.

use std::sync::Arc;
use std::time::Duration;

use io::task::{self, Thread};
use io::{Clock, Nanos};
use parking_lot::{Mutex, MutexGuard};

use super::inbox::{Arrived, Inbox, Lying, Rest};
use super::pulse::Pulse;
use super::runner::Runner;
use super::store::FileStore;
use crate::batch_window::BatchWindow;
use crate::contract::Applier;
use crate::proposal::Proposal;

/// So often a proposer looks again whether more has come, before it leaves that to the log thread.
const LOOKS_MAX: usize = 4;
/// A turn that took longer was held up by the disk or by the engine; on a busy machine, where a thread is
/// interrupted for some milliseconds now and then, shorter ones say nothing.
const SLOW: Duration = Duration::from_millis(25);
/// So long proposers leave all turns to the log thread after one that was held up.
const LEFT_ALONE: Duration = Duration::from_millis(250);

/// What is proposed, and what carries it out; shared by the log thread and proposers.
pub(super) struct Turns {
    /// What waits for a turn.
    pub inbox: Inbox,
    /// Whether turns come to an end, and the disk has space.
    pub pulse: Arc<Pulse>,
    // Held for a turn; `None` when the log thread has ended.
    state: Mutex<Option<State>>,
}

/// What who has the turn works with.
pub(super) struct State {
    /// Carries out turns.
    pub runner: Runner<FileStore>,
    /// What this turn is about.
    pub arrived: Arrived,
    /// What soft proposals may be waited for.
    pub company: BatchWindow,
    /// Makes the engine's rows durable.
    pub applier: Arc<dyn Applier>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Flushes the engine.
    pub flush_thread: Option<Thread>,
    pulse: Arc<Pulse>,
    // Whether somebody has begun a turn and not ended it: after a panic nobody can go on.
    in_turn: bool,
    // Until when proposers leave turns alone.
    alone_until: Nanos,
}

/// What a proposer does next.
enum Next {
    Look,
    Leave,
    CallLogThread,
}

impl Turns {
    /// Turns of `runner`, which applies with `applier`.
    pub fn new(runner: Runner<FileStore>, applier: Arc<dyn Applier>, clock: Arc<dyn Clock>) -> Arc<Turns> {
        let pulse = Arc::<Pulse>::default();
        let state = State {
            pulse: Arc::clone(&pulse),
            runner,
            arrived: Arrived::default(),
            company: BatchWindow::default(),
            applier,
            clock,
            flush_thread: None,
            in_turn: false,
            alone_until: Nanos::default(),
        };
        Arc::new(Turns { inbox: Inbox::default(), pulse, state: Mutex::new(Some(state)) })
    }

    /// Waits for the turn. `None` in it when the log has ended, or a turn has not ended well.
    pub fn lock(&self) -> MutexGuard<'_, Option<State>> {
        let mut state = task::lock(&self.state);
        if state.as_ref().is_some_and(|state| state.in_turn) {
            *state = None;
        }
        state
    }

    /// A proposer has come back: takes the turn for the soft entries that lie there, unless somebody else
    /// has it, who then sees to them.
    pub fn take(&self) {
        for _ in 0..LOOKS_MAX {
            match self.take_one() {
                Next::Look => {}
                Next::Leave => return,
                Next::CallLogThread => break,
            }
        }
        self.inbox.call();
    }

    fn take_one(&self) -> Next {
        // Who has the turn looks at the inbox once it has given it away.
        let Some(mut guard) = self.state.try_lock() else { return Next::Leave };
        let Some(state) = guard.as_mut().filter(|state| !state.in_turn) else { return Next::Leave };
        if !state.is_for_proposers() {
            drop(guard);
            return match self.inbox.is_empty() {
                true => Next::Leave,
                false => Next::CallLogThread,
            };
        }
        match self.inbox.take_soft(&mut state.arrived.proposals) {
            Lying::Nothing => {
                drop(guard);
                return match self.inbox.is_empty() {
                    true => Next::Leave,
                    false => Next::Look,
                };
            }
            Lying::More => return Next::CallLogThread,
            Lying::Soft => {}
        }
        let _should_it_panic = CloseOnPanic(&self.inbox);
        state.begin_turn();
        let mut proposals = std::mem::take(&mut state.arrived.proposals);
        state.order(&mut proposals);
        state.arrived.proposals = proposals;
        state.end_turn();
        let due = state.runner.due();
        drop(guard);
        match self.inbox.after_turn(due) {
            true => Next::Leave,
            false => Next::Look,
        }
    }
}

impl State {
    /// Whether the next turn will be short, as far as can be known: no file to be made, and nothing that
    /// has lately held one up.
    fn is_for_proposers(&self) -> bool {
        self.runner.may_be_quick() && self.clock.now() >= self.alone_until
    }

    /// From here to the end of the turn a panic leaves something that nobody can go on with.
    pub fn begin_turn(&mut self) {
        self.pulse.turn(Some(self.clock.now()));
        self.in_turn = true;
    }

    /// The turn has ended well.
    pub fn end_turn(&mut self) {
        self.pulse.turn(None);
        self.pulse.full(self.runner.full_since());
        if let Some(cause) = self.runner.failure() {
            self.pulse.stop(self.clock.now(), cause);
        }
        self.in_turn = false;
    }

    /// Has the runner take a turn. When that was held up, proposers keep away for a while.
    pub fn order(&mut self, proposals: &mut Vec<Proposal>) {
        let began = self.clock.now();
        self.runner.turn(proposals);
        let ended = self.clock.now();
        if ended.since(began) > SLOW {
            self.alone_until = ended.after(LEFT_ALONE);
        }
    }

    /// How the log thread rests until it is needed.
    pub fn rest(&self) -> Rest {
        let due = self.runner.due();
        Rest {
            due,
            wait: due.map(|due| due.since(self.clock.now())),
            patience: self.runner.patience(),
            company: self.company.expected(),
        }
    }
}

/// Nobody may wait for a turn that a panic has ended.
struct CloseOnPanic<'a>(&'a Inbox);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}
