//! Responses that other threads have completed for a connection.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Instant;

use ::io::memory::Reservation;
use parking_lot::Mutex;
use protocol::Token;

use super::stream::Stream;
use super::token_table::Job;
use crate::service::QueryKind;
use crate::worker_state::wake_queue::ConnectionWaker;

/// A response, encoded on the thread that computed it.
pub struct Completion {
    /// The query's token.
    pub token: Token,
    /// The job that ended.
    pub job: Job,
    /// The whole frame.
    pub frame: Vec<u8>,
    /// The memory of the frame.
    pub hold: Reservation,
    /// The stream, if more batches may follow.
    pub stream: Option<Stream>,
    /// The values to record.
    pub metrics: QueryMetrics,
    /// Whether the client wants no answer.
    pub noreply: bool,
    /// Whether a changefeed had no element: there is no frame, and the client still waits.
    pub is_waiting: bool,
}

/// The values that are recorded when a query is answered.
#[derive(Clone, Copy, Debug)]
pub struct QueryMetrics {
    pub kind: QueryKind,
    /// When the last byte of the query was read.
    pub started: Instant,
    /// Whether the answer is an error.
    pub failed: bool,
}

/// The completed responses of one connection.
pub struct CompletionQueue {
    waker: Arc<ConnectionWaker>,
    completed: Mutex<Vec<Completion>>,
    /// Queries whose changefeeds have elements.
    ready: Mutex<Vec<Token>>,
}

/// Notes that the changefeed of a query has elements, and wakes its connection.
struct FeedWaker {
    queue: Arc<CompletionQueue>,
    token: Token,
}

impl Wake for FeedWaker {
    fn wake(self: Arc<Self>) {
        self.queue.ready.lock().push(self.token);
        self.queue.waker.wake_connection();
    }
}

impl CompletionQueue {
    /// An empty queue; each [`CompletionQueue::push`] wakes `waker`.
    pub fn new(waker: Arc<ConnectionWaker>) -> Arc<CompletionQueue> {
        Arc::new(CompletionQueue { waker, completed: Mutex::default(), ready: Mutex::default() })
    }

    /// Adds a completion and wakes the connection.
    pub fn push(&self, completion: Completion) {
        self.completed.lock().push(completion);
        self.waker.wake_connection();
    }

    /// The waker for the changefeed of a query. It is used once.
    pub fn feed_waker(self: &Arc<Self>, token: Token) -> Waker {
        Waker::from(Arc::new(FeedWaker { queue: self.clone(), token }))
    }

    /// Removes and returns the queries whose changefeeds were woken.
    pub fn take_ready(&self) -> Vec<Token> {
        std::mem::take(&mut *self.ready.lock())
    }

    /// Removes and returns all completions.
    pub fn take(&self) -> Vec<Completion> {
        std::mem::take(&mut *self.completed.lock())
    }
}
