//! Answers that come to a connection from other threads.

use std::sync::Arc;
use std::time::Instant;

use ::io::memory::Reservation;
use parking_lot::Mutex;
use protocol::Token;

use super::stream::Stream;
use super::token_table::Job;
use crate::service::QueryKind;
use crate::worker_state::wake_queue::ConnectionWaker;

/// An answer, encoded where it was made.
pub struct Completion {
    /// Whose answer.
    pub token: Token,
    /// Which piece of work ended.
    pub job: Job,
    /// The whole frame.
    pub frame: Vec<u8>,
    /// The memory of the frame.
    pub hold: Reservation,
    /// Where the next batch comes from.
    pub stream: Option<Stream>,
    /// What to count.
    pub metrics: QueryMetrics,
    /// Whether the client wants no answer.
    pub noreply: bool,
}

/// What is counted of a query when it is answered.
#[derive(Clone, Copy, Debug)]
pub struct QueryMetrics {
    /// Which kind.
    pub kind: QueryKind,
    /// When its last byte was read.
    pub started: Instant,
    /// Whether the answer is an error.
    pub failed: bool,
}

/// One connection's completions box.
pub struct CompletionQueue {
    waker: Arc<ConnectionWaker>,
    completed: Mutex<Vec<Completion>>,
}

impl CompletionQueue {
    /// An empty box that wakes `waker` when a completion comes.
    pub fn new(waker: Arc<ConnectionWaker>) -> Arc<CompletionQueue> {
        Arc::new(CompletionQueue { waker, completed: Mutex::default() })
    }

    /// Puts a completion in and tells the connection.
    pub fn push(&self, completion: Completion) {
        self.completed.lock().push(completion);
        self.waker.wake_connection();
    }

    /// Takes every completion out.
    pub fn take(&self) -> Vec<Completion> {
        std::mem::take(&mut *self.completed.lock())
    }
}
