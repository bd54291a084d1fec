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
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The links of this node to the others, once there are any.
pub struct Peers {
    client: OnceLock<Arc<dyn RpcClient>>,
    /// Where the shard of a range is asked, for tests of the way between nodes.
    forced: OnceLock<ForcedTarget>,
    next: AtomicU64,
}

type ForcedTarget = Box<dyn Fn(&KeyRange) -> Option<ServerId> + Send + Sync>;

/// A question as bytes, or why it cannot be asked.
pub(crate) type EncodedRequest = Result<Bytes, EvalError>;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The links have none.
    Rpc(RpcError),
    /// It was not asked.
    NotSent(EvalError),
}

/// Why an answer is not what was asked for.
#[derive(Debug)]
pub(crate) enum RemoteError {
    /// The other node does not have it (any more), but perhaps this one has; nothing was done.
    NotHere(Option<ServerId>),
    /// The question never left: nothing was done.
    NotConnected,
    /// The question could not be written out, and never will be: nothing was done.
    NotSent(EvalError),
    /// It is not known what was done.
    NoResponse,
    /// It was carried out and failed.
    Eval(EvalError),
}

impl From<CallError> for RemoteError {
    fn from(unanswered: CallError) -> RemoteError {
        match unanswered {
            CallError::NotSent(error) => RemoteError::NotSent(error),
            CallError::Rpc(RpcError::NotConnected(_)) => RemoteError::NotConnected,
            CallError::Rpc(RpcError::NoAnswer(_)) => RemoteError::NoResponse,
            // Nothing was done: a server that is still starting refuses everything.
            CallError::Rpc(RpcError::Refused { .. }) => RemoteError::NotConnected,
        }
    }
}

impl Peers {
    /// No links yet. Numbers of cursors and of questions that can be stopped begin at `first`, which
    /// should be random: a node that was started again must not use the old ones.
    pub(crate) fn new(first: u64) -> Peers {
        Peers { client: OnceLock::new(), forced: OnceLock::new(), next: AtomicU64::new(first) }
    }

    /// From now on asks through `ask`. The first call counts.
    pub fn connect(&self, ask: Arc<dyn RpcClient>) {
        // A second set of links would be a fault of the caller, who keeps the first.
        let _ = self.client.set(ask);
    }

    /// Asks another server for every shard for which `whom` names one, even if it is at hand. For tests.
    #[doc(hidden)]
    pub fn force_target(&self, whom: impl Fn(&KeyRange) -> Option<ServerId> + Send + Sync + 'static) {
        let _ = self.forced.set(Box::new(whom));
    }

    /// Where the shard of this range is asked, if it does not matter where it is.
    pub(crate) fn forced_target(&self, range: &KeyRange) -> Option<ServerId> {
        self.forced.get().and_then(|whom| whom(range))
    }

    /// Whether `server` can be asked now.
    pub(crate) fn is_connected(&self, server: ServerId) -> bool {
        self.client.get().is_some_and(|ask| ask.is_connected(server))
    }

    /// A number no other question of this node has.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Asks; the answer comes into the slot. That of a question that could not be written out is there at once.
    pub(crate) fn call(
        &self,
        server: ServerId,
        request: EncodedRequest,
        timeout: Duration,
    ) -> Arc<ResponseSlot> {
        self.call_into_slot(server, request, |ask, request, answered| {
            ask.ask(server, request, timeout, answered);
        })
    }

    /// [`Peers::ask`] for whoever sees to it that [`Peers::turn`] is called.
    pub(crate) fn call_buffered(
        &self,
        server: ServerId,
        request: EncodedRequest,
        timeout: Duration,
    ) -> Arc<ResponseSlot> {
        self.call_into_slot(server, request, |ask, request, answered| {
            ask.call_buffered(server, request, timeout, answered);
        })
    }

    fn call_into_slot(
        &self,
        server: ServerId,
        request: EncodedRequest,
        ask: impl FnOnce(&dyn RpcClient, Bytes, OnResponse),
    ) -> Arc<ResponseSlot> {
        let slot = Arc::new(ResponseSlot::default());
        let tell = slot.clone();
        match (self.client.get(), request) {
            (Some(peers), Ok(request)) => {
                ask(&**peers, request, Box::new(move |answer| tell.complete(answer.map_err(CallError::Rpc))));
            }
            (None, Ok(_)) => slot.complete(Err(CallError::Rpc(RpcError::NotConnected(server)))),
            (_, Err(error)) => slot.complete(Err(CallError::NotSent(error))),
        }
        slot
    }

    /// The same for whoever is told the answer, on a thread of the links.
    pub(crate) fn call_buffered_with(
        &self,
        server: ServerId,
        request: Bytes,
        timeout: Duration,
        answered: OnResponse,
    ) {
        match self.client.get() {
            Some(ask) => ask.call_buffered(server, request, timeout, answered),
            None => answered(Err(RpcError::NotConnected(server))),
        }
    }

    /// What was asked aside leaves.
    pub(crate) fn flush(&self) {
        self.client.get().into_iter().for_each(|ask| ask.turn());
    }

    /// Tells something short that needs no answer.
    pub(crate) fn notify(&self, server: ServerId, request: EncodedRequest) {
        if let (Some(ask), Ok(request)) = (self.client.get(), request) {
            ask.ask(server, request, SHORT, Box::new(|_| ()));
        }
    }
}

/// A value that comes from another thread, once.
pub(crate) struct OneShot<T> {
    state: Mutex<Shared<T>>,
    changed: Condvar,
}

/// The answer to a question.
pub(crate) type ResponseSlot = OneShot<Result<Bytes, CallError>>;

struct Shared<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Default for OneShot<T> {
    fn default() -> Self {
        OneShot { state: Mutex::new(Shared { value: None, waker: None }), changed: Condvar::new() }
    }
}

impl<T> OneShot<T> {
    /// Puts the value in and wakes whoever waits for it.
    pub fn complete(&self, value: T) {
        let waker = {
            let mut state = self.state.lock();
            state.value = Some(value);
            state.waker.take()
        };
        self.wake(waker);
    }

    /// [`OneShot::tell`] that leaves a value alone that came before and was not taken.
    pub fn complete_if_empty(&self, value: T) {
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
    pub fn is_complete(&self) -> bool {
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

impl ResponseSlot {
    /// Blocks until the answer is here, or until `cancel` is set.
    pub fn wait(&self, cancel: &Cancel) -> Result<Bytes, RemoteError> {
        self.wait_or(cancel, || ())
    }

    /// The same; calls `is_slow`, once, when that takes a while.
    pub fn wait_or(&self, cancel: &Cancel, is_slow: impl FnOnce()) -> Result<Bytes, RemoteError> {
        let mut is_slow = Some(is_slow);
        let mut state = self.state.lock();
        loop {
            if let Some(value) = state.value.take() {
                return value.map_err(RemoteError::from);
            }
            if cancel.is_set() {
                return Err(RemoteError::Eval(EvalError::cancelled()));
            }
            if self.changed.wait_for(&mut state, CANCEL_CHECK_INTERVAL).timed_out()
                && let Some(is_slow) = is_slow.take()
            {
                MutexGuard::unlocked(&mut state, is_slow);
            }
        }
    }
}

/// Runs a future to its end on whatever threads wake it, and hands its output on.
pub(crate) struct CallbackTask<F: Future, D>(Mutex<Option<(Pin<Box<F>>, D)>>);

impl<F, D> CallbackTask<F, D>
where
    F: Future + Send + 'static,
    D: FnOnce(F::Output) + Send + 'static,
{
    /// Begins; `done` may be called at once.
    pub fn start(future: F, done: D) {
        Arc::new(CallbackTask(Mutex::new(Some((Box::pin(future), done))))).step();
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

impl<F, D> std::task::Wake for CallbackTask<F, D>
where
    F: Future + Send + 'static,
    D: FnOnce(F::Output) + Send + 'static,
{
    fn wake(self: Arc<Self>) {
        self.step();
    }
}
