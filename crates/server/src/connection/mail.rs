//! Answers that come to a connection from other threads.

use std::sync::Arc;
use std::time::Instant;

use ::io::memory::Hold;
use parking_lot::Mutex;
use protocol::Token;

use super::dialogue::Job;
use super::stream::Stream;
use crate::service::QueryKind;
use crate::wake_queue::ConnectionWaker;

/// An answer, encoded where it was made.
pub struct Letter {
    /// Whose answer.
    pub token: Token,
    /// Which piece of work ended.
    pub job: Job,
    /// The whole frame.
    pub frame: Vec<u8>,
    /// The memory of the frame.
    pub hold: Hold,
    /// Where the next batch comes from.
    pub stream: Option<Stream>,
    /// What to count.
    pub tally: Tally,
    /// Whether the client wants no answer.
    pub noreply: bool,
}

/// What is counted of a query when it is answered.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    /// Which kind.
    pub kind: QueryKind,
    /// When its last byte was read.
    pub started: Instant,
    /// Whether the answer is an error.
    pub failed: bool,
}

/// One connection's mail box.
pub struct Mail {
    waker: Arc<ConnectionWaker>,
    letters: Mutex<Vec<Letter>>,
}

impl Mail {
    /// An empty box that wakes `waker` when a letter comes.
    pub fn new(waker: Arc<ConnectionWaker>) -> Arc<Mail> {
        Arc::new(Mail { waker, letters: Mutex::default() })
    }

    /// Puts a letter in and tells the connection.
    pub fn deliver(&self, letter: Letter) {
        self.letters.lock().push(letter);
        self.waker.wake_connection();
    }

    /// Takes every letter out.
    pub fn collect(&self) -> Vec<Letter> {
        std::mem::take(&mut *self.letters.lock())
    }
}
