//! One driver's connection: bytes in, queries run, answers out.
//!
//! A connection reads what has arrived, decodes every complete query, runs the short ones where
//! it stands, and sends all answers that are ready with one write. It is one future on its
//! worker's thread; other threads reach it through its mail.

mod acknowledge;
mod answer;
mod dialogue;
mod mail;
mod outbox;
mod stream;
mod talk;
mod work;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::io::memory::{Hold, OverBudget, Owner};
use protocol::frame::{self, Decoded, TooLarge};
use protocol::handshake::{Established, ServerHandshake, Step, Version};
use protocol::{Failure, Token, response};
use reql::EvalError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Sleep, sleep};

use crate::service::Client;
use crate::wake_queue::{ConnectionWaker, Slot};
use crate::worker_state::WorkerState;
use acknowledge::Acknowledge;
use mail::Mail;
use outbox::Outbox;
use talk::Talk;

/// Queries of one connection that run at the same time.
const JOBS_MAX: usize = 1024;

/// With more than this unsent nothing more is read: the client must take its answers.
const UNSENT_BYTES_MAX: usize = 1 << 20;

/// Bytes that are read ahead while a connection has as many queries as it may.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// What the buffer of a long query grows by at least.
const GROW_BYTES: usize = 64 << 10;

/// Smaller changes of the buffers are not worth counting.
const COUNTED_BYTES: u64 = 16 << 10;

/// A read offers room for at least this.
const READ_BYTES_MIN: usize = 4 << 10;

/// Rounds of reading and writing before other connections get their turn.
const ROUNDS: usize = 8;

/// How long a refused client may take to read why.
const LINGER: Duration = Duration::from_secs(2);

/// One driver's connection. Completes when it is closed.
pub struct Connection<S> {
    stream: S,
    worker: Rc<WorkerState>,
    slot: Slot,
    waker: Arc<ConnectionWaker>,
    address: SocketAddr,
    phase: Phase,
    /// Bytes of queries that are not complete, or not yet allowed to run.
    partial: Vec<u8>,
    out: Outbox,
    /// The memory of both.
    hold: Hold,
}

enum Phase {
    Handshake(Box<Greeting>),
    Queries(Box<Talk>),
    /// Send what is left, then close.
    Closing,
    /// All is sent; the client is given time to read it before the socket goes.
    Lingering(Pin<Box<Sleep>>),
}

/// A handshake that is under way.
struct Greeting {
    handshake: ServerHandshake,
    /// When the client has had long enough.
    limit: Pin<Box<Sleep>>,
}

/// What to do after a round of reading and writing.
enum Round {
    Again,
    Wait,
    Over,
}

impl<S: AsyncRead + AsyncWrite + Acknowledge + Unpin> Connection<S> {
    /// A connection that has just been accepted from `address`.
    pub fn new(stream: S, address: SocketAddr, worker: Rc<WorkerState>) -> Connection<S> {
        worker.counters.connections.fetch_add(1, Relaxed);
        worker.counters.accepted.fetch_add(1, Relaxed);
        let slot = worker.take_slot();
        Connection {
            stream,
            slot,
            waker: ConnectionWaker::new(worker.wakes.clone(), slot),
            address,
            phase: Phase::Handshake(Box::new(Greeting {
                handshake: ServerHandshake::new(worker.shared.randomness()),
                limit: Box::pin(sleep(worker.shared.handshake_limit)),
            })),
            partial: Vec::new(),
            out: Outbox::default(),
            hold: Hold::new(worker.shared.memory.clone(), Owner::Connections),
            worker,
        }
    }

    fn round(&mut self, cx: &mut Context<'_>) -> Round {
        let mut next = Round::Wait;
        if self.waker.take() {
            if let Phase::Queries(talk) = &mut self.phase {
                talk.collect(&mut self.out);
            }
            next = Round::Again;
        }
        if self.worker.interrupting.get()
            && let Phase::Queries(talk) = &mut self.phase
        {
            talk.interrupt();
        }
        if self.is_too_slow(cx) {
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
            // Queries may be waiting until the client has taken some answers.
            next = Round::Again;
        }
        // Before the answer leaves: the next query may come as soon as it is there.
        if let Phase::Queries(talk) = &mut self.phase
            && talk.took_long()
        {
            self.stream.acknowledge_with_answers();
        }
        let sent = self.out.poll_send(cx, &mut self.stream, &self.worker);
        self.count_buffers();
        match sent {
            Poll::Ready(Err(_)) => Round::Over,
            Poll::Ready(Ok(())) => self.after_send(cx, next),
            Poll::Pending if self.out.unsent() > UNSENT_BYTES_MAX => Round::Wait,
            Poll::Pending => next,
        }
    }

    /// Whether the client has not said who it is in the time it has for that.
    fn is_too_slow(&mut self, cx: &mut Context<'_>) -> bool {
        let Phase::Handshake(greeting) = &mut self.phase else { return false };
        if greeting.limit.as_mut().poll(cx).is_pending() {
            return false;
        }
        tracing::debug!("closed a connection from {} that did not finish its handshake", self.address);
        self.worker.counters.refused.fetch_add(1, Relaxed);
        true
    }

    fn wants_bytes(&self) -> bool {
        match &self.phase {
            _ if self.out.unsent() > UNSENT_BYTES_MAX => false,
            Phase::Handshake(_) | Phase::Lingering(_) => true,
            Phase::Queries(_) if self.worker.shared.draining.load(Relaxed) => false,
            Phase::Queries(talk) => self.partial.len() < AHEAD_BYTES_MAX || !talk.is_full(),
            Phase::Closing => false,
        }
    }

    /// Reads once and serves what is complete. Ready with the number of bytes that came.
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

    /// Room for the rest of the first query, but never much more than has really come.
    fn grow_partial(&mut self) -> Result<(), OverBudget> {
        let missing = match frame::decode(&self.partial) {
            Ok(Decoded::Incomplete { frame_bytes }) => frame_bytes.saturating_sub(self.partial.len()),
            _ => 0,
        };
        let trusted = self.partial.len().max(GROW_BYTES);
        let more = missing.clamp(READ_BYTES_MIN, trusted);
        if more >= GROW_BYTES {
            self.hold.grow_to((self.partial.len() + more + self.out.capacity()) as u64)?;
        }
        self.partial.reserve_exact(more);
        Ok(())
    }

    /// There is no room for the rest of a query. What follows cannot be skipped without reading it:
    /// the connection ends.
    fn refuse_for_memory(&mut self, over: OverBudget) {
        let token = self.partial.first_chunk().map_or(Token(0), |header| frame::read_header(header).0);
        let failure = Failure::from(EvalError::memory(over));
        response::write_failure(self.out.bytes(&self.worker), token, &failure);
        self.partial = Vec::new();
        self.phase = Phase::Closing;
    }

    /// Puts what the buffers take on the account, when it has changed much.
    fn count_buffers(&mut self) {
        let bytes = (self.partial.capacity() + self.out.capacity()) as u64;
        if bytes.abs_diff(self.hold.bytes()) >= COUNTED_BYTES {
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

    /// Handles everything complete at the front of `bytes`; returns how many are done with.
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
        match &mut self.phase {
            Phase::Handshake(_) => self.shake_hands(bytes),
            Phase::Queries(talk) if talk.is_full() || self.out.unsent() > UNSENT_BYTES_MAX => None,
            Phase::Queries(talk) => match frame::decode(bytes) {
                Ok(Decoded::Incomplete { .. }) => None,
                Ok(Decoded::Complete(frame)) => {
                    talk.on_frame(frame, &mut self.out);
                    Some(frame.total_bytes())
                }
                Err(too_large) => {
                    self.refuse(too_large);
                    Some(bytes.len())
                }
            },
            Phase::Closing | Phase::Lingering(_) => Some(bytes.len()),
        }
    }

    fn shake_hands(&mut self, bytes: &[u8]) -> Option<usize> {
        let Phase::Handshake(greeting) = &mut self.phase else { return None };
        let shared = &*self.worker.shared;
        let progress =
            greeting.handshake.advance(bytes, shared, &shared.server_version, self.out.bytes(&self.worker));
        match progress.step {
            Step::NeedMore if progress.used == 0 => return None,
            Step::NeedMore => {}
            Step::Established(established) => self.begin_talk(established),
            Step::Refused(why) => {
                tracing::debug!("refused a connection from {}: {why}", self.address);
                self.worker.counters.refused.fetch_add(1, Relaxed);
                self.phase = Phase::Closing;
            }
        }
        Some(progress.used)
    }

    fn begin_talk(&mut self, established: Established) {
        let jobs_max = match established.version {
            Version::V0_3 => 1,
            Version::V0_4 | Version::V1_0 => JOBS_MAX,
        };
        let client = Client { user: established.user, address: self.address };
        let session = self.worker.shared.service.session(client);
        let (mail, waker) = (Mail::new(self.waker.clone()), Waker::from(self.waker.clone()));
        self.phase = Phase::Queries(Box::new(Talk::new(self.worker.clone(), session, mail, waker, jobs_max)));
    }

    /// What follows an oversized header cannot be believed: the connection ends.
    fn refuse(&mut self, too_large: TooLarge) {
        let failure = Failure::client(too_large.to_string());
        response::write_failure(self.out.bytes(&self.worker), too_large.token, &failure);
        self.phase = Phase::Closing;
    }

    /// Everything is sent: go on, or take leave.
    fn after_send(&mut self, cx: &mut Context<'_>, next: Round) -> Round {
        match &mut self.phase {
            Phase::Queries(talk) if self.worker.shared.draining.load(Relaxed) && talk.is_idle() => {
                Round::Over
            }
            Phase::Handshake(_) if self.worker.shared.draining.load(Relaxed) => Round::Over,
            Phase::Queries(_) | Phase::Handshake(_) => next,
            Phase::Closing => match Pin::new(&mut self.stream).poll_shutdown(cx) {
                Poll::Ready(Ok(())) => {
                    self.phase = Phase::Lingering(Box::pin(sleep(LINGER)));
                    Round::Again
                }
                Poll::Ready(Err(_)) => Round::Over,
                Poll::Pending => Round::Wait,
            },
            Phase::Lingering(patience) => match patience.as_mut().poll(cx) {
                Poll::Ready(()) => Round::Over,
                Poll::Pending => next,
            },
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Acknowledge + Unpin> Future for Connection<S> {
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

/// Appends what has arrived, at most what fits into the spare room of `buffer`.
fn poll_read<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    buffer: &mut Vec<u8>,
) -> Poll<io::Result<usize>> {
    pin!(stream.read_buf(buffer)).poll(cx)
}
