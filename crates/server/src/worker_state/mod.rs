//! What the connections of one worker share, and what all workers share.

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

/// Long enough for a client far away that proves its password (a round trip and thousands of rounds
/// of hashing); short enough that silent connections do not pile up. RethinkDB waits for ever.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What every connection of a node shares.
pub struct Shared {
    /// Runs the queries.
    pub service: Arc<dyn QueryService>,
    /// Threads for the queries that need one.
    pub pool: QueryPool,
    /// What V1_0 clients are told; informational for them.
    pub server_version: String,
    /// What queries, cursors and connections draw their memory from.
    pub memory: Arc<Budget>,
    /// What connections are encrypted with; `None` for connections in the clear.
    pub tls: Option<TlsAcceptor>,
    /// How long a client may take to say who it is; then its connection is closed.
    pub handshake_timeout: Duration,
    /// Set when the node shuts down: nothing more is read, what runs is answered.
    pub draining: AtomicBool,
    random: Arc<dyn Random>,
    decoy: Decoy,
}

impl Shared {
    /// What is shared where `service` runs the queries, with as much memory as there is.
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

    /// The chance of one more handshake.
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

/// Bytes a worker reads at once from a connection that sends small queries.
const READ_BYTES: usize = 64 << 10;

/// An answer buffer up to this is kept: that of a stream's batch of ordinary rows.
const WRITE_BYTES_KEPT: usize = 256 << 10;

/// What the connections of one worker share. Never leaves its thread.
pub struct WorkerState {
    /// The node.
    pub shared: Arc<Shared>,
    /// This worker's numbers.
    pub counters: Arc<Counters>,
    /// What short queries allocate on this thread.
    pub account: Arc<Account>,
    /// How other threads reach this worker.
    pub wakes: Arc<WakeQueue>,
    /// Set when running queries have had long enough to end by themselves.
    pub interrupting: Cell<bool>,
    /// How much was begun since the last turn of the service, and who takes the next one.
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

    /// Something was begun that needs a turn of the service. Its taker comes after those who are ready now, at the
    /// earliest.
    pub fn request_drive(&self) {
        self.drive_requests.set(self.drive_requests.get() + 1);
        if let Some(drive_waker) = self.drive_waker.take() {
            drive_waker.wake();
        }
    }

    /// Ready when a turn is owed.
    pub fn poll_drive_request(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.drive_requests.get() > 0 {
            return Poll::Ready(());
        }
        self.drive_waker.set(Some(cx.waker().clone()));
        Poll::Pending
    }

    /// Whoever waited for a turn to be owed waits no longer.
    pub fn clear_drive_waker(&self) {
        self.drive_waker.set(None);
    }

    /// How much was begun since this was asked last. Whoever asks owes the turn for it.
    pub fn take_drive_requests(&self) -> usize {
        self.drive_requests.take()
    }

    /// A slot for one more connection, until [`WorkerState::free_slot`].
    pub fn take_slot(&self) -> Slot {
        if let Some(slot) = self.free.borrow_mut().pop() {
            return slot;
        }
        let mut slots = self.slots.borrow_mut();
        slots.push(None);
        Slot(slots.len() - 1)
    }

    /// Gives a slot back.
    pub fn free_slot(&self, slot: Slot) {
        if let Some(waker) = self.slots.borrow_mut().get_mut(slot.0) {
            *waker = None;
        }
        self.free.borrow_mut().push(slot);
    }

    /// Remembers whom to wake when something is ready for `slot`.
    pub fn remember(&self, slot: Slot, waker: &Waker) {
        if let Some(place) = self.slots.borrow_mut().get_mut(slot.0) {
            match place {
                Some(known) if known.will_wake(waker) => {}
                _ => *place = Some(waker.clone()),
            }
        }
    }

    /// Wakes the connection on `slot`, if there is one.
    pub fn wake(&self, slot: Slot) {
        if let Some(Some(waker)) = self.slots.borrow().get(slot.0) {
            waker.wake_by_ref();
        }
    }

    /// Wakes every connection.
    pub fn wake_all(&self) {
        for waker in self.slots.borrow().iter().flatten() {
            waker.wake_by_ref();
        }
    }

    /// An empty buffer to read into; give it back.
    pub fn take_read_buffer(&self) -> Vec<u8> {
        let mut buffer = self.read_buffer.take();
        buffer.clear();
        buffer.reserve(READ_BYTES);
        buffer
    }

    /// Keeps a read buffer for the next connection.
    pub fn return_read_buffer(&self, buffer: Vec<u8>) {
        self.read_buffer.set(buffer);
    }

    /// An empty buffer to write answers into; give it back when they are sent.
    pub fn take_write_buffer(&self) -> Vec<u8> {
        self.write_buffer.take()
    }

    /// Keeps an answer buffer for the next connection, unless it has grown large.
    pub fn return_write_buffer(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= WRITE_BYTES_KEPT {
            buffer.clear();
            self.write_buffer.set(buffer);
        }
    }
}
