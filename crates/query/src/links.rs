//! The way to other nodes, and answers that are not here yet.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use cluster::{OnResponse, RpcClient, RpcError, ServerId};
use datum::KeyRange;
use parking_lot::{Condvar, Mutex, MutexGuard};
use reql::{Cancel, EvalError};

/// How long a short question (one row, a count) may take.
pub(crate) const SHORT: Duration = Duration::from_secs(30);
/// How long a question may take that is about many rows. A node that is gone is noticed sooner.
pub(crate) const LONG: Duration = Duration::from_secs(24 * 3600);
/// How often a thread that waits for an answer looks whether its query was told to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The links of this node to the others, once there are any.
pub struct Links {
    ask: OnceLock<Arc<dyn RpcClient>>,
    /// Where the shard of a range is asked, for tests of the way between nodes.
    elsewhere: OnceLock<Elsewhere>,
    next: AtomicU64,
}

type Elsewhere = Box<dyn Fn(&KeyRange) -> Option<ServerId> + Send + Sync>;

/// A question as bytes, or why it cannot be asked.
pub(crate) type Written = Result<Bytes, EvalError>;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The links have none.
    Lost(RpcError),
    /// It was not asked.
    Unasked(EvalError),
}

/// Why an answer is not what was asked for.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The other node does not have it (any more), but perhaps this one has; nothing was done.
    Moved(Option<ServerId>),
    /// The question never left: nothing was done.
    NotConnected,
    /// The question could not be written out, and never will be: nothing was done.
    Unasked(EvalError),
    /// It is not known what was done.
    NoAnswer,
    /// It was carried out and failed.
    Eval(EvalError),
}

impl From<Unanswered> for Trouble {
    fn from(unanswered: Unanswered) -> Trouble {
        match unanswered {
            Unanswered::Unasked(error) => Trouble::Unasked(error),
            Unanswered::Lost(RpcError::NotConnected(_)) => Trouble::NotConnected,
            Unanswered::Lost(RpcError::NoAnswer(_)) => Trouble::NoAnswer,
            // Nothing was done: a server that is still starting refuses everything.
            Unanswered::Lost(RpcError::Refused { .. }) => Trouble::NotConnected,
        }
    }
}

impl Links {
    /// No links yet. Numbers of cursors and of questions that can be stopped begin at `first`, which
    /// should be random: a node that was started again must not use the old ones.
    pub(crate) fn new(first: u64) -> Links {
        Links { ask: OnceLock::new(), elsewhere: OnceLock::new(), next: AtomicU64::new(first) }
    }

    /// From now on asks through `ask`. The first call counts.
    pub fn set(&self, ask: Arc<dyn RpcClient>) {
        // A second set of links would be a fault of the caller, who keeps the first.
        let _ = self.ask.set(ask);
    }

    /// Asks another server for every shard for which `whom` names one, even if it is at hand. For tests.
    #[doc(hidden)]
    pub fn ask_elsewhere(&self, whom: impl Fn(&KeyRange) -> Option<ServerId> + Send + Sync + 'static) {
        let _ = self.elsewhere.set(Box::new(whom));
    }

    /// Where the shard of this range is asked, if it does not matter where it is.
    pub(crate) fn elsewhere(&self, range: &KeyRange) -> Option<ServerId> {
        self.elsewhere.get().and_then(|whom| whom(range))
    }

    /// Whether `server` can be asked now.
    pub(crate) fn is_connected(&self, server: ServerId) -> bool {
        self.ask.get().is_some_and(|ask| ask.is_connected(server))
    }

    /// A number no other question of this node has.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Asks; the answer comes into the slot. That of a question that could not be written out is there at once.
    pub(crate) fn ask(&self, server: ServerId, question: Written, patience: Duration) -> Arc<Slot> {
        self.answered_into_slot(server, question, |ask, question, answered| {
            ask.ask(server, question, patience, answered);
        })
    }

    /// [`Links::ask`] for whoever sees to it that [`Links::turn`] is called.
    pub(crate) fn call_buffered(&self, server: ServerId, question: Written, patience: Duration) -> Arc<Slot> {
        self.answered_into_slot(server, question, |ask, question, answered| {
            ask.call_buffered(server, question, patience, answered);
        })
    }

    fn answered_into_slot(
        &self,
        server: ServerId,
        question: Written,
        ask: impl FnOnce(&dyn RpcClient, Bytes, OnResponse),
    ) -> Arc<Slot> {
        let slot = Arc::new(Slot::default());
        let tell = slot.clone();
        match (self.ask.get(), question) {
            (Some(links), Ok(question)) => {
                ask(&**links, question, Box::new(move |answer| tell.tell(answer.map_err(Unanswered::Lost))));
            }
            (None, Ok(_)) => slot.tell(Err(Unanswered::Lost(RpcError::NotConnected(server)))),
            (_, Err(error)) => slot.tell(Err(Unanswered::Unasked(error))),
        }
        slot
    }

    /// The same for whoever is told the answer, on a thread of the links.
    pub(crate) fn ask_aside_telling(
        &self,
        server: ServerId,
        question: Bytes,
        patience: Duration,
        answered: OnResponse,
    ) {
        match self.ask.get() {
            Some(ask) => ask.call_buffered(server, question, patience, answered),
            None => answered(Err(RpcError::NotConnected(server))),
        }
    }

    /// What was asked aside leaves.
    pub(crate) fn turn(&self) {
        self.ask.get().into_iter().for_each(|ask| ask.turn());
    }

    /// Tells something short that needs no answer.
    pub(crate) fn tell(&self, server: ServerId, question: Written) {
        if let (Some(ask), Ok(question)) = (self.ask.get(), question) {
            ask.ask(server, question, SHORT, Box::new(|_| ()));
        }
    }
}

/// A value that comes from another thread, once.
pub(crate) struct OneShot<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

/// The answer to a question.
pub(crate) type Slot = OneShot<Result<Bytes, Unanswered>>;

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Default for OneShot<T> {
    fn default() -> Self {
        OneShot { state: Mutex::new(State { value: None, waker: None }), changed: Condvar::new() }
    }
}

impl<T> OneShot<T> {
    /// Puts the value in and wakes whoever waits for it.
    pub fn tell(&self, value: T) {
        let waker = {
            let mut state = self.state.lock();
            state.value = Some(value);
            state.waker.take()
        };
        self.wake(waker);
    }

    /// [`OneShot::tell`] that leaves a value alone that came before and was not taken.
    pub fn give_up(&self, value: T) {
        let waker = {
            let mut state = self.state.lock();
            if state.value.is_some() {
                return;
            }
            state.value = Some(value);
            state.waker.take()
        };
        self.wake(waker);
    }

    fn wake(&self, waker: Option<Waker>) {
        self.changed.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether there is a value to be taken.
    pub fn is_told(&self) -> bool {
        self.state.lock().value.is_some()
    }

    /// Takes the value, or remembers whom to wake.
    pub fn poll(&self, context: &Context<'_>) -> Poll<T> {
        let mut state = self.state.lock();
        if let Some(value) = state.value.take() {
            return Poll::Ready(value);
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Slot {
    /// Blocks until the answer is here, or until `cancel` is set.
    pub fn wait(&self, cancel: &Cancel) -> Result<Bytes, Trouble> {
        self.wait_or(cancel, || ())
    }

    /// The same; calls `is_slow`, once, when that takes a while.
    pub fn wait_or(&self, cancel: &Cancel, is_slow: impl FnOnce()) -> Result<Bytes, Trouble> {
        let mut is_slow = Some(is_slow);
        let mut state = self.state.lock();
        loop {
            if let Some(value) = state.value.take() {
                return value.map_err(Trouble::from);
            }
            if cancel.is_set() {
                return Err(Trouble::Eval(EvalError::cancelled()));
            }
            if self.changed.wait_for(&mut state, LOOK).timed_out()
                && let Some(is_slow) = is_slow.take()
            {
                MutexGuard::unlocked(&mut state, is_slow);
            }
        }
    }
}

/// Runs a future to its end on whatever threads wake it, and hands its output on.
pub(crate) struct Errand<F: Future, D>(Mutex<Option<(Pin<Box<F>>, D)>>);

impl<F, D> Errand<F, D>
where
    F: Future + Send + 'static,
    D: FnOnce(F::Output) + Send + 'static,
{
    /// Begins; `done` may be called at once.
    pub fn start(future: F, done: D) {
        Arc::new(Errand(Mutex::new(Some((Box::pin(future), done))))).step();
    }

    fn step(self: Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut held = self.0.lock();
        let Some((mut future, done)) = held.take() else { return };
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => *held = Some((future, done)),
            Poll::Ready(output) => {
                drop(held);
                done(output);
            }
        }
    }
}

impl<F, D> std::task::Wake for Errand<F, D>
where
    F: Future + Send + 'static,
    D: FnOnce(F::Output) + Send + 'static,
{
    fn wake(self: Arc<Self>) {
        self.step();
    }
}
