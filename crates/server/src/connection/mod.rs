//! One driver's connection: reads the socket, passes the bytes to the protocol, writes the responses.
//!
//! A connection reads all available bytes, lets [`rethinkdb`] decode every complete query and run the short ones in
//! place, and sends all responses that are ready with one write. It is one future on its worker's thread; other threads
//! reach it through its waker. All that is specific to RethinkDB's protocol is in [`rethinkdb`].

mod delayed_ack;
mod rethinkdb;
mod send_buffer;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use ::io::memory::{OverBudget, Owner, Reservation};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Sleep, sleep};

use crate::service::Client;
use crate::worker_state::WorkerState;
use crate::worker_state::wake_queue::{ConnectionWaker, Slot};
use delayed_ack::DelayedAck;
use rethinkdb::{Consumed, ProtocolState};
use send_buffer::SendBuffer;

/// With more than this unsent nothing more is read: the client must take its responses first.
const UNSENT_BYTES_MAX: usize = 1 << 20;

/// The buffer of a long query grows by at least this.
const GROW_BYTES: usize = 64 << 10;

/// Smaller changes of the buffers' size are not charged to the memory budget.
const CHARGED_BYTES_MIN: u64 = 16 << 10;

/// A read offers at least this much room.
const READ_BYTES_MIN: usize = 4 << 10;

/// Rounds of reading and writing before the connection yields to others.
const ROUNDS: usize = 8;

/// How long a refused client may take to read the reason.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// One driver's connection. Completes when it is closed.
pub struct Connection<S> {
    stream: S,
    worker: Rc<WorkerState>,
    slot: Slot,
    waker: Arc<ConnectionWaker>,
    phase: Phase,
    /// Bytes of queries that are incomplete or must wait.
    partial: Vec<u8>,
    out: SendBuffer,
    /// The memory of both buffers.
    hold: Reservation,
}

enum Phase {
    Open(ProtocolState),
    /// Everything unsent is sent, then the stream is closed.
    Closing,
    /// Everything is sent; the socket stays open for a while so that the client can read it.
    Lingering(Pin<Box<Sleep>>),
}

/// What to do after a round of reading and writing.
enum Round {
    Again,
    Wait,
    Over,
}

impl<S: AsyncRead + AsyncWrite + DelayedAck + Unpin> Connection<S> {
    /// A connection that has just been accepted from `address`. It begins with the handshake.
    pub fn new(stream: S, address: SocketAddr, worker: Rc<WorkerState>) -> Connection<S> {
        Connection::begin(stream, worker, |worker, waker| ProtocolState::new(worker, waker, address))
    }

    /// A connection whose client is known already. It begins with queries.
    pub fn authenticated(stream: S, client: Client, worker: Rc<WorkerState>) -> Connection<S> {
        Connection::begin(stream, worker, |worker, waker| ProtocolState::authenticated(worker, waker, client))
    }

    fn begin(
        stream: S,
        worker: Rc<WorkerState>,
        protocol: impl FnOnce(&Rc<WorkerState>, &Arc<ConnectionWaker>) -> ProtocolState,
    ) -> Connection<S> {
        worker.counters.connections.fetch_add(1, Relaxed);
        worker.counters.accepted.fetch_add(1, Relaxed);
        let slot = worker.take_slot();
        let waker = ConnectionWaker::new(worker.wakes.clone(), slot);
        Connection {
            stream,
            slot,
            phase: Phase::Open(protocol(&worker, &waker)),
            waker,
            partial: Vec::new(),
            out: SendBuffer::default(),
            hold: Reservation::new(worker.shared.memory.clone(), Owner::Connections),
            worker,
        }
    }

    fn round(&mut self, cx: &mut Context<'_>) -> Round {
        let mut next = Round::Wait;
        if self.waker.take() {
            if let Phase::Open(protocol) = &mut self.phase {
                protocol.collect_completions(&mut self.out);
            }
            next = Round::Again;
        }
        if self.worker.interrupting.get()
            && let Phase::Open(protocol) = &mut self.phase
        {
            protocol.interrupt();
        }
        if let Phase::Open(protocol) = &mut self.phase
            && protocol.has_timed_out(cx)
        {
            return Round::Over;
        }
        self.serve_partial();
        if self.wants_bytes() {
            match self.poll_receive(cx) {
                Poll::Ready(Ok(0) | Err(_)) => return Round::Over,
                Poll::Ready(Ok(_)) => next = Round::Again,
                Poll::Pending => {}
            }
        }
        if self.out.unsent() > UNSENT_BYTES_MAX {
            // Queries may be waiting until the client has taken some responses.
            next = Round::Again;
        }
        // Before the response is sent: the next query may come as soon as the client has it.
        if let Phase::Open(protocol) = &mut self.phase
            && protocol.was_slow()
        {
            self.stream.delay_acks();
        }
        let sent = self.out.poll_send(cx, &mut self.stream, &self.worker);
        self.charge_buffers();
        match sent {
            Poll::Ready(Err(_)) => Round::Over,
            Poll::Ready(Ok(())) => self.after_send(cx, next),
            Poll::Pending if self.out.unsent() > UNSENT_BYTES_MAX => Round::Wait,
            Poll::Pending => next,
        }
    }

    fn wants_bytes(&self) -> bool {
        match &self.phase {
            _ if self.out.unsent() > UNSENT_BYTES_MAX => false,
            Phase::Open(protocol) => {
                protocol.accepts_input(self.partial.len(), self.worker.shared.draining.load(Relaxed))
            }
            Phase::Closing => false,
            Phase::Lingering(_) => true,
        }
    }

    /// Reads once and serves every complete query. Ready with the number of bytes read.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let received = if self.partial.is_empty() {
            let mut buffer = self.worker.take_read_buffer();
            let received = poll_read(&mut self.stream, cx, &mut buffer);
            let used = self.serve(&buffer);
            self.partial.extend_from_slice(buffer.get(used..).unwrap_or_default());
            self.worker.return_read_buffer(buffer);
            received
        } else {
            if let Err(over) = self.grow_partial() {
                self.refuse_for_memory(over);
                return Poll::Pending;
            }
            let received = poll_read(&mut self.stream, cx, &mut self.partial);
            self.serve_partial();
            received
        };
        if let Poll::Ready(Ok(count)) = received {
            self.worker.counters.bytes_in.fetch_add(count as u64, Relaxed);
        }
        received
    }

    /// Makes room for the rest of the first query, but at most doubles the bytes that have really arrived: a header may lie about
    /// the length.
    fn grow_partial(&mut self) -> Result<(), OverBudget> {
        let trusted = self.partial.len().max(GROW_BYTES);
        let more = rethinkdb::missing_bytes(&self.partial).clamp(READ_BYTES_MIN, trusted);
        if more >= GROW_BYTES {
            self.hold.grow_to((self.partial.len() + more + self.out.capacity()) as u64)?;
        }
        self.partial.reserve_exact(more);
        Ok(())
    }

    /// Closes the connection: there is no memory for the rest of a query, and later queries cannot be found without
    /// reading it.
    fn refuse_for_memory(&mut self, over: OverBudget) {
        rethinkdb::write_over_budget(&self.partial, over, self.out.bytes(&self.worker));
        self.partial = Vec::new();
        self.phase = Phase::Closing;
    }

    /// Charges the size of the buffers to the memory budget, when it has changed by much.
    fn charge_buffers(&mut self) {
        let bytes = (self.partial.capacity() + self.out.capacity()) as u64;
        if bytes.abs_diff(self.hold.bytes()) >= CHARGED_BYTES_MIN {
            self.hold.set(bytes);
        }
    }

    fn serve_partial(&mut self) {
        if self.partial.is_empty() {
            return;
        }
        let mut bytes = std::mem::take(&mut self.partial);
        let used = self.serve(&bytes);
        if used < bytes.len() {
            bytes.drain(..used);
            self.partial = bytes;
        }
    }

    /// Handles everything complete at the front of `bytes`; returns how many bytes are done with.
    fn serve(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            if rest.is_empty() {
                return used;
            }
            match self.serve_one(rest) {
                Some(count) => used += count,
                None => return used,
            }
        }
    }

    /// Handles the front of `bytes`; `None` when nothing can be done yet.
    fn serve_one(&mut self, bytes: &[u8]) -> Option<usize> {
        let Phase::Open(protocol) = &mut self.phase else { return Some(bytes.len()) };
        if self.out.unsent() > UNSENT_BYTES_MAX {
            return None;
        }
        match protocol.consume(bytes, &mut self.out, &self.worker) {
            Consumed::Nothing => None,
            Consumed::Bytes(count) => Some(count),
            Consumed::Close => {
                self.phase = Phase::Closing;
                Some(bytes.len())
            }
        }
    }

    /// Everything is sent: goes on, or closes the connection.
    fn after_send(&mut self, cx: &mut Context<'_>, next: Round) -> Round {
        match &mut self.phase {
            Phase::Open(protocol) if self.worker.shared.draining.load(Relaxed) && protocol.is_idle() => {
                Round::Over
            }
            Phase::Open(_) => next,
            Phase::Closing => match Pin::new(&mut self.stream).poll_shutdown(cx) {
                Poll::Ready(Ok(())) => {
                    self.phase = Phase::Lingering(Box::pin(sleep(LINGER_TIMEOUT)));
                    Round::Again
                }
                Poll::Ready(Err(_)) => Round::Over,
                Poll::Pending => Round::Wait,
            },
            Phase::Lingering(timeout) => match timeout.as_mut().poll(cx) {
                Poll::Ready(()) => Round::Over,
                Poll::Pending => next,
            },
        }
    }
}

impl<S: AsyncRead + AsyncWrite + DelayedAck + Unpin> Future for Connection<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.worker.remember(this.slot, cx.waker());
        for _ in 0..ROUNDS {
            match this.round(cx) {
                Round::Again => {}
                Round::Wait => return Poll::Pending,
                Round::Over => return Poll::Ready(()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        self.worker.free_slot(self.slot);
        self.worker.counters.connections.fetch_sub(1, Relaxed);
    }
}

/// Reads available bytes into the spare capacity of `buffer`.
fn poll_read<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    buffer: &mut Vec<u8>,
) -> Poll<io::Result<usize>> {
    pin!(stream.read_buf(buffer)).poll(cx)
}
