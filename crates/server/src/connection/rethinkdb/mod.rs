//! RethinkDB's wire protocol on one connection: the handshake, then queries and their responses.
//!
//! Nothing here touches a socket. The connection passes in the bytes that have arrived and sends the bytes that are
//! appended to its [`SendBuffer`].

mod completions;
mod pool_job;
mod query_session;
mod response_frame;
mod room;
mod stream;
mod token_table;

use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Waker};

use ::io::memory::OverBudget;
use protocol::frame::{self, Decoded};
use protocol::handshake::{Established, ServerHandshake, Step, Version};
use protocol::{Failure, Token, response};
use reql::EvalError;
use tokio::time::{Sleep, sleep};

use crate::connection::send_buffer::SendBuffer;
use crate::service::Client;
use crate::worker_state::WorkerState;
use crate::worker_state::wake_queue::ConnectionWaker;
use completions::CompletionQueue;
use query_session::QuerySession;

/// Queries of one connection that run at the same time.
const JOBS_MAX: usize = 1024;

/// Bytes that are read ahead while the maximum number of queries runs.
const READ_AHEAD_BYTES_MAX: usize = 64 << 10;

/// How far a connection is in the protocol.
pub(super) enum ProtocolState {
    Handshake(Box<Handshake>),
    Queries(Box<QuerySession>),
}

/// A handshake in progress.
pub(super) struct Handshake {
    server: ServerHandshake,
    /// Ends the connection when the client takes too long.
    timeout: Pin<Box<Sleep>>,
    worker: Rc<WorkerState>,
    waker: Arc<ConnectionWaker>,
    address: SocketAddr,
}

/// The outcome of [`ProtocolState::consume`].
pub(super) enum Consumed {
    /// Nothing can be done with them yet.
    Nothing,
    /// This many at the front are done with.
    Bytes(usize),
    /// The connection ends after the appended bytes are sent; the rest of the input is ignored.
    Close,
}

impl ProtocolState {
    /// The start of the handshake with the client at `address`.
    pub fn new(worker: &Rc<WorkerState>, waker: &Arc<ConnectionWaker>, address: SocketAddr) -> ProtocolState {
        ProtocolState::Handshake(Box::new(Handshake {
            server: ServerHandshake::new(worker.shared.randomness()),
            timeout: Box::pin(sleep(worker.shared.handshake_timeout)),
            worker: worker.clone(),
            waker: waker.clone(),
            address,
        }))
    }

    /// The queries of a client that was authenticated elsewhere.
    pub fn authenticated(
        worker: &Rc<WorkerState>,
        waker: &Arc<ConnectionWaker>,
        client: Client,
    ) -> ProtocolState {
        ProtocolState::Queries(Box::new(query_session(worker, waker, client, JOBS_MAX)))
    }

    /// Whether the client has not finished the handshake in time.
    pub fn has_timed_out(&mut self, cx: &mut Context<'_>) -> bool {
        let ProtocolState::Handshake(handshake) = self else { return false };
        if handshake.timeout.as_mut().poll(cx).is_pending() {
            return false;
        }
        tracing::debug!("closed a connection from {} that did not finish its handshake", handshake.address);
        handshake.worker.counters.refused.fetch_add(1, Relaxed);
        true
    }

    /// Whether to read more while `buffered` bytes are not consumed yet. `is_draining`: the server is shutting down.
    pub fn accepts_input(&self, buffered: usize, is_draining: bool) -> bool {
        match self {
            ProtocolState::Handshake(_) => true,
            ProtocolState::Queries(_) if is_draining => false,
            ProtocolState::Queries(queries) => buffered < READ_AHEAD_BYTES_MAX || !queries.is_full(),
        }
    }

    /// Handles one message at the front of `bytes`, which are not empty; appends the response if it is ready.
    pub fn consume(&mut self, bytes: &[u8], out: &mut SendBuffer, worker: &WorkerState) -> Consumed {
        match self {
            ProtocolState::Handshake(_) => self.shake_hands(bytes, out),
            ProtocolState::Queries(queries) if queries.is_full() => Consumed::Nothing,
            ProtocolState::Queries(queries) => match frame::decode(bytes) {
                Ok(Decoded::Incomplete { .. }) => Consumed::Nothing,
                Ok(Decoded::Complete(frame)) => {
                    queries.on_frame(frame, out);
                    Consumed::Bytes(frame.total_bytes())
                }
                // The bytes after an oversized header cannot be trusted to be frames.
                Err(too_large) => {
                    let failure = Failure::client(too_large.to_string());
                    response::write_failure(out.bytes(worker), too_large.token, &failure);
                    Consumed::Close
                }
            },
        }
    }

    fn shake_hands(&mut self, bytes: &[u8], out: &mut SendBuffer) -> Consumed {
        let ProtocolState::Handshake(handshake) = self else { return Consumed::Nothing };
        let Handshake { server, worker, .. } = &mut **handshake;
        let shared = &*worker.shared;
        let progress = server.advance(bytes, shared, &shared.server_version, out.bytes(worker));
        match progress.step {
            Step::NeedMore if progress.used == 0 => Consumed::Nothing,
            Step::NeedMore => Consumed::Bytes(progress.used),
            Step::Established(established) => {
                let session = handshake.query_session(established);
                *self = ProtocolState::Queries(Box::new(session));
                Consumed::Bytes(progress.used)
            }
            Step::Refused(why) => {
                tracing::debug!("refused a connection from {}: {why}", handshake.address);
                handshake.worker.counters.refused.fetch_add(1, Relaxed);
                Consumed::Close
            }
        }
    }

    /// Appends the responses that other threads have completed.
    pub fn collect_completions(&mut self, out: &mut SendBuffer) {
        if let ProtocolState::Queries(queries) = self {
            queries.collect(out);
        }
    }

    /// Cancels every running query; each is still answered.
    pub fn interrupt(&mut self) {
        if let ProtocolState::Queries(queries) = self {
            queries.interrupt();
        }
    }

    /// Whether one of the responses since the last call took longer than the system delays an acknowledgement.
    pub fn was_slow(&mut self) -> bool {
        match self {
            ProtocolState::Handshake(_) => false,
            ProtocolState::Queries(queries) => queries.was_slow(),
        }
    }

    /// Whether no query runs.
    pub fn is_idle(&self) -> bool {
        match self {
            ProtocolState::Handshake(_) => true,
            ProtocolState::Queries(queries) => queries.is_idle(),
        }
    }
}

impl Handshake {
    fn query_session(&self, established: Established) -> QuerySession {
        let jobs_max = match established.version {
            Version::V0_3 => 1,
            Version::V0_4 | Version::V1_0 => JOBS_MAX,
        };
        let client = Client { user: established.user, address: self.address };
        query_session(&self.worker, &self.waker, client, jobs_max)
    }
}

fn query_session(
    worker: &Rc<WorkerState>,
    waker: &Arc<ConnectionWaker>,
    client: Client,
    jobs_max: usize,
) -> QuerySession {
    let session = worker.shared.service.session(client);
    let (completions, waker) = (CompletionQueue::new(waker.clone()), Waker::from(waker.clone()));
    QuerySession::new(worker.clone(), session, completions, waker, jobs_max)
}

/// How many bytes the first query in `partial` still lacks; 0 if that is unknown.
pub(super) fn missing_bytes(partial: &[u8]) -> usize {
    match frame::decode(partial) {
        Ok(Decoded::Incomplete { frame_bytes }) => frame_bytes.saturating_sub(partial.len()),
        _ => 0,
    }
}

/// Appends an out-of-memory error for the first query in `partial`.
pub(super) fn write_over_budget(partial: &[u8], over: OverBudget, out: &mut Vec<u8>) {
    let token = partial.first_chunk().map_or(Token(0), |header| frame::read_header(header).0);
    response::write_failure(out, token, &Failure::from(EvalError::memory(over)));
}
