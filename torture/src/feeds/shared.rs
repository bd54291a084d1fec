//! State that the writers, the feeds and the faults share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

use super::check::Rest;
use super::nodes::Nodes;
use super::options::Mutant;
use super::tally::Tally;
use super::writes::Writes;

/// The table that is written and followed.
pub(super) fn table() -> Value {
    json!([15, [[14, ["test"]], "crash"]])
}

/// Shared by all threads of a run.
pub(super) struct Shared {
    pub(super) writes: Writes,
    pub(super) nodes: Nodes,
    pub(super) tally: Tally,
    pub(super) mutant: Option<Mutant>,
    /// Set to end the writers and the feeds.
    pub(super) over: AtomicBool,
    pub(super) resting: Resting,
}

/// A quiescent point, and which sessions have reached it.
#[derive(Default)]
pub(super) struct Resting {
    number: AtomicU64,
    state: Mutex<Reached>,
    changed: Condvar,
}

#[derive(Default)]
struct Reached {
    rest: Option<Arc<Rest>>,
    /// By session: how many feeds were compared, or the reason why one differs.
    sessions: HashMap<usize, Result<u64, String>>,
}

impl Resting {
    /// Publishes the table at a quiescent point.
    pub(super) fn begin(&self, rest: Rest) {
        *self.state.lock() = Reached { rest: Some(Arc::new(rest)), sessions: HashMap::new() };
        self.number.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends it: writers continue.
    pub(super) fn end(&self) {
        self.state.lock().rest = None;
        self.number.fetch_add(1, Ordering::SeqCst);
    }

    /// A number that changes whenever a quiescent point begins or ends.
    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }

    /// The present quiescent point.
    pub(super) fn current(&self) -> Option<Arc<Rest>> {
        self.state.lock().rest.clone()
    }

    /// A session has compared its feeds at the quiescent point of this number.
    pub(super) fn report(&self, number: u64, session: usize, result: Result<u64, String>) {
        let mut state = self.state.lock();
        if self.number() == number {
            state.sessions.insert(session, result);
            self.changed.notify_all();
        }
    }

    /// Waits until all sessions agree; returns the number of comparisons, or the differences at the deadline.
    pub(super) fn wait(&self, sessions: usize, deadline: Instant) -> Result<u64, Vec<String>> {
        let mut state = self.state.lock();
        loop {
            let agreed: Vec<u64> =
                state.sessions.values().filter_map(|result| result.as_ref().ok()).copied().collect();
            if agreed.len() == sessions {
                return Ok(agreed.iter().sum());
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                let reasons = state.sessions.iter().filter_map(|(session, result)| {
                    let reason = result.as_ref().err()?;
                    Some(format!("session {session}: {reason}"))
                });
                let silent = sessions - state.sessions.len();
                let silent = (silent > 0).then(|| format!("{silent} sessions have not compared their feeds"));
                return Err(reasons.chain(silent).collect());
            }
        }
    }
}
