//! State that the connections of one worker share, and state that all workers share.

mod query_pool;
pub(crate) mod wake_queue;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::io::Random;
use ::io::memory::{Account, Budget};
use protocol::handshake::{Accounts, Randomness};
use protocol::scram::{Decoy, PasswordRecord};

use tokio_rustls::TlsAcceptor;

use crate::counters::Counters;
use crate::service::QueryService;
use query_pool::QueryPool;
use wake_queue::{Slot, WakeQueue};

/// Long enough for a remote client to prove its password (a round trip and thousands of hash iterations); short enough
/// that silent connections do not pile up. RethinkDB has no such timeout.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What every connection of a node shares.
pub struct Shared {
    /// Runs the queries.
    pub service: Arc<dyn QueryService>,
    /// Threads for the queries that need one.
    pub pool: QueryPool,
    /// The version sent to V1_0 clients; informational.
    pub server_version: String,
    /// The memory budget of queries, cursors and connections.
    pub memory: Arc<Budget>,
    /// Encrypts connections; `None` for plain TCP.
    pub tls: Option<TlsAcceptor>,
    /// How long a client may take for the handshake before its connection is closed.
    pub handshake_timeout: Duration,
    /// Set when the node shuts down: no more queries are read, running ones are answered.
    pub draining: AtomicBool,
    random: Arc<dyn Random>,
    decoy: Decoy,
}

impl Shared {
    /// The shared state for `service`, with an unlimited memory budget.
    pub fn new(
        service: Arc<dyn QueryService>,
        random: Arc<dyn Random>,
        server_version: String,
    ) -> std::io::Result<Shared> {
        let mut secret = [0; 32];
        random.fill(&mut secret);
        Ok(Shared {
            service,
            pool: QueryPool::new()?,
            server_version,
            memory: Budget::unlimited(),
            tls: None,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            draining: AtomicBool::new(false),
            random,
            decoy: Decoy::new(secret),
        })
    }

    /// Fresh random numbers for one handshake.
    pub(crate) fn randomness(&self) -> Randomness {
        let mut nonce = [0; 18];
        self.random.fill(&mut nonce);
        Randomness { nonce, decoy: self.decoy.clone() }
    }
}

impl Accounts for Shared {
    fn password(&self, user: &str) -> Option<PasswordRecord> {
        self.service.password(user)
    }
}

/// Read buffer of a worker, in bytes.
const READ_BYTES: usize = 64 << 10;

/// A larger write buffer is not kept. A batch of ordinary rows fits.
const WRITE_BYTES_KEPT: usize = 256 << 10;

/// State that the connections of one worker share. Never leaves its thread.
pub struct WorkerState {
    /// State of all workers.
    pub shared: Arc<Shared>,
    pub counters: Arc<Counters>,
    /// Accounts the memory of short queries on this thread.
    pub account: Arc<Account>,
    /// Wakes connections of this worker from other threads.
    pub wakes: Arc<WakeQueue>,
    /// Set during shutdown when running queries have not ended in time and are cancelled.
    pub interrupting: Cell<bool>,
    /// How many queries have begun since the service was last driven.
    drive_requests: Cell<usize>,
    drive_waker: Cell<Option<Waker>>,
    slots: RefCell<Vec<Option<Waker>>>,
    free: RefCell<Vec<Slot>>,
    read_buffer: Cell<Vec<u8>>,
    write_buffer: Cell<Vec<u8>>,
}

impl WorkerState {
    /// A worker without connections.
    #[must_use]
    pub fn new(shared: Arc<Shared>, counters: Arc<Counters>) -> WorkerState {
        WorkerState {
            account: Account::for_short_queries(shared.memory.clone()),
            shared,
            counters,
            wakes: Arc::default(),
            interrupting: Cell::new(false),
            drive_requests: Cell::new(0),
            drive_waker: Cell::default(),
            slots: RefCell::default(),
            free: RefCell::default(),
            read_buffer: Cell::new(Vec::with_capacity(READ_BYTES)),
            write_buffer: Cell::default(),
        }
    }

    /// Records that a query needs the service to be driven. The driving task runs after all tasks that are ready now.
    pub fn request_drive(&self) {
        self.drive_requests.set(self.drive_requests.get() + 1);
        if let Some(drive_waker) = self.drive_waker.take() {
            drive_waker.wake();
        }
    }

    /// Ready when the service must be driven.
    pub fn poll_drive_request(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.drive_requests.get() > 0 {
            return Poll::Ready(());
        }
        self.drive_waker.set(Some(cx.waker().clone()));
        Poll::Pending
    }

    /// Forgets the task that waits in [`WorkerState::poll_drive_request`].
    pub fn clear_drive_waker(&self) {
        self.drive_waker.set(None);
    }

    /// How many queries have requested this since the last call. The caller must drive the service for them.
    pub fn take_drive_requests(&self) -> usize {
        self.drive_requests.take()
    }

    /// Allocates a slot for a connection, until [`WorkerState::free_slot`].
    pub fn take_slot(&self) -> Slot {
        if let Some(slot) = self.free.borrow_mut().pop() {
            return slot;
        }
        let mut slots = self.slots.borrow_mut();
        slots.push(None);
        Slot(slots.len() - 1)
    }

    pub fn free_slot(&self, slot: Slot) {
        if let Some(waker) = self.slots.borrow_mut().get_mut(slot.0) {
            *waker = None;
        }
        self.free.borrow_mut().push(slot);
    }

    /// Sets the waker of the connection in `slot`.
    pub fn remember(&self, slot: Slot, waker: &Waker) {
        if let Some(place) = self.slots.borrow_mut().get_mut(slot.0) {
            match place {
                Some(known) if known.will_wake(waker) => {}
                _ => *place = Some(waker.clone()),
            }
        }
    }

    /// Wakes the connection in `slot`, if there is one.
    pub fn wake(&self, slot: Slot) {
        if let Some(Some(waker)) = self.slots.borrow().get(slot.0) {
            waker.wake_by_ref();
        }
    }

    pub fn wake_all(&self) {
        for waker in self.slots.borrow().iter().flatten() {
            waker.wake_by_ref();
        }
    }

    /// An empty buffer to read into, to be returned with [`WorkerState::return_read_buffer`].
    pub fn take_read_buffer(&self) -> Vec<u8> {
        let mut buffer = self.read_buffer.take();
        buffer.clear();
        buffer.reserve(READ_BYTES);
        buffer
    }

    /// Keeps the buffer for the next read.
    pub fn return_read_buffer(&self, buffer: Vec<u8>) {
        self.read_buffer.set(buffer);
    }

    /// An empty buffer for responses, to be returned with [`WorkerState::return_write_buffer`] when they are sent.
    pub fn take_write_buffer(&self) -> Vec<u8> {
        self.write_buffer.take()
    }

    /// Keeps the buffer for the next connection, unless it has grown large.
    pub fn return_write_buffer(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= WRITE_BYTES_KEPT {
            buffer.clear();
            self.write_buffer.set(buffer);
        }
    }
}
