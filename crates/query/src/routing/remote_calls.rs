//! The calls of queries to other nodes, and slots for their responses. The requests go out through the `RpcClient` of the
//! cluster.

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

/// The timeout of a short call (one row, a count).
pub(crate) const SHORT_CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of a call about many rows. The loss of a node is noticed sooner.
pub(crate) const LONG_CALL_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// How often a blocked thread checks whether its query was cancelled.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Sends the requests of queries to other nodes. Each response comes into a slot that a thread or a task waits for. Without
/// a client every call fails as not connected.
pub struct RemoteCalls {
    client: OnceLock<Arc<dyn RpcClient>>,
    /// The server to call for a shard's range instead of its replica, in tests.
    forced: OnceLock<ForcedTarget>,
    next: AtomicU64,
}

type ForcedTarget = Box<dyn Fn(&KeyRange) -> Option<ServerId> + Send + Sync>;

/// An encoded request, or the error why it cannot be encoded.
pub(crate) type EncodedRequest = Result<Bytes, EvalError>;

/// Why a call has no response.
#[derive(Debug)]
pub(crate) enum CallError {
    Rpc(RpcError),
    NotSent(EvalError),
}

/// Why a request did not have its result.
#[derive(Debug)]
pub(crate) enum RemoteError {
    /// The other node does not have the shard (any more); nothing was done. It may name the leader.
    NotHere(Option<ServerId>),
    /// The request was not sent: nothing was done.
    NotConnected,
    /// The request could not be encoded, and a retry would not help: nothing was done.
    NotSent(EvalError),
    /// The effect of the request is unknown.
    NoResponse,
    /// The request was carried out and failed.
    Eval(EvalError),
}

impl From<CallError> for RemoteError {
    fn from(error: CallError) -> RemoteError {
        match error {
            CallError::NotSent(error) => RemoteError::NotSent(error),
            CallError::Rpc(RpcError::NotConnected(_)) => RemoteError::NotConnected,
            CallError::Rpc(RpcError::NoResponse(_)) => RemoteError::NoResponse,
            // Nothing was done: a server that is still starting refuses all requests.
            CallError::Rpc(RpcError::Refused { .. }) => RemoteError::NotConnected,
        }
    }
}

impl RemoteCalls {
    /// Without a client. Numbers of cursors and of cancellable requests start at `first`, which should be random: a
    /// restarted node must not reuse its old numbers.
    pub(crate) fn new(first: u64) -> RemoteCalls {
        RemoteCalls { client: OnceLock::new(), forced: OnceLock::new(), next: AtomicU64::new(first) }
    }

    /// Sets the client that calls go through. Only the first call has an effect.
    pub fn connect(&self, client: Arc<dyn RpcClient>) {
        // Setting it twice is a mistake of the caller; the first client stays.
        let _ = self.client.set(client);
    }

    /// Calls another server for every shard for which `target` names one, also for local shards. For tests.
    #[doc(hidden)]
    pub fn force_target(&self, target: impl Fn(&KeyRange) -> Option<ServerId> + Send + Sync + 'static) {
        let _ = self.forced.set(Box::new(target));
    }

    /// The server that a test wants to be called for the shard of this range.
    pub(crate) fn forced_target(&self, range: &KeyRange) -> Option<ServerId> {
        self.forced.get().and_then(|target| target(range))
    }

    /// Whether `server` is connected now.
    pub(crate) fn is_connected(&self, server: ServerId) -> bool {
        self.client.get().is_some_and(|client| client.is_connected(server))
    }

    /// A number that no other request of this node has.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request; the response comes into the slot. If the request could not be encoded, the slot has the error
    /// at once.
    pub(crate) fn call(
        &self,
        server: ServerId,
        request: EncodedRequest,
        timeout: Duration,
    ) -> Arc<ResponseSlot> {
        self.call_into_slot(server, request, |client, request, on_response| {
            client.call(server, request, timeout, on_response);
        })
    }

    /// [`RemoteCalls::call`] for callers that call [`RemoteCalls::flush`] afterwards.
    pub(crate) fn call_buffered(
        &self,
        server: ServerId,
        request: EncodedRequest,
        timeout: Duration,
    ) -> Arc<ResponseSlot> {
        self.call_into_slot(server, request, |client, request, on_response| {
            client.call_buffered(server, request, timeout, on_response);
        })
    }

    fn call_into_slot(
        &self,
        server: ServerId,
        request: EncodedRequest,
        send: impl FnOnce(&dyn RpcClient, Bytes, OnResponse),
    ) -> Arc<ResponseSlot> {
        let slot = Arc::new(ResponseSlot::default());
        let completed = slot.clone();
        match (self.client.get(), request) {
            (Some(client), Ok(request)) => {
                let complete = move |response: Result<Bytes, RpcError>| {
                    completed.complete(response.map_err(CallError::Rpc));
                };
                send(&**client, request, Box::new(complete));
            }
            (None, Ok(_)) => slot.complete(Err(CallError::Rpc(RpcError::NotConnected(server)))),
            (_, Err(error)) => slot.complete(Err(CallError::NotSent(error))),
        }
        slot
    }

    /// As [`RemoteCalls::call_buffered`], with a callback that runs on a thread of the client.
    pub(crate) fn call_buffered_with(
        &self,
        server: ServerId,
        request: Bytes,
        timeout: Duration,
        on_response: OnResponse,
    ) {
        match self.client.get() {
            Some(client) => client.call_buffered(server, request, timeout, on_response),
            None => on_response(Err(RpcError::NotConnected(server))),
        }
    }

    /// Sends the buffered requests.
    pub(crate) fn flush(&self) {
        self.client.get().into_iter().for_each(|client| client.flush());
    }

    /// Sends a short request whose response does not matter.
    pub(crate) fn notify(&self, server: ServerId, request: EncodedRequest) {
        if let (Some(client), Ok(request)) = (self.client.get(), request) {
            client.call(server, request, SHORT_CALL_TIMEOUT, Box::new(|_| ()));
        }
    }
}

/// A value that another thread sets once.
pub(crate) struct OneShot<T> {
    state: Mutex<Shared<T>>,
    changed: Condvar,
}

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
    /// Sets the value and wakes the waiting thread or task.
    pub fn complete(&self, value: T) {
        let waker = {
            let mut state = self.state.lock();
            state.value = Some(value);
            state.waker.take()
        };
        self.wake(waker);
    }

    /// [`OneShot::complete`], unless a value was set and not taken yet.
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

    /// Whether it has a value to take.
    pub fn is_complete(&self) -> bool {
        self.state.lock().value.is_some()
    }

    /// Takes the value, or registers the waker.
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
    /// Blocks until the response arrives or `cancel` is set.
    pub fn wait(&self, cancel: &Cancel) -> Result<Bytes, RemoteError> {
        self.wait_or(cancel, || ())
    }

    /// Waits as [`Self::wait`] does, and calls `on_slow` once if the response takes longer than [`CANCEL_CHECK_INTERVAL`].
    pub fn wait_or(&self, cancel: &Cancel, on_slow: impl FnOnce()) -> Result<Bytes, RemoteError> {
        let mut on_slow = Some(on_slow);
        let mut state = self.state.lock();
        loop {
            if let Some(value) = state.value.take() {
                return value.map_err(RemoteError::from);
            }
            if cancel.is_set() {
                return Err(RemoteError::Eval(EvalError::cancelled()));
            }
            if self.changed.wait_for(&mut state, CANCEL_CHECK_INTERVAL).timed_out()
                && let Some(on_slow) = on_slow.take()
            {
                MutexGuard::unlocked(&mut state, on_slow);
            }
        }
    }
}

/// Polls a future on the threads that wake it, and passes its output to a callback.
pub(crate) struct CallbackTask<F: Future, D>(Mutex<Option<(Pin<Box<F>>, D)>>);

impl<F, D> CallbackTask<F, D>
where
    F: Future + Send + 'static,
    D: FnOnce(F::Output) + Send + 'static,
{
    /// Starts polling; `done` may be called at once.
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
