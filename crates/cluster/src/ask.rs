//! Questions between nodes: bytes there, bytes back. What they mean belongs to whoever asks and
//! whoever answers (for queries: `query`); how they travel belongs to the links between nodes.
//!
//! A question is answered once. Whatever is long is asked for piece by piece, so that the one who
//! asks sets the pace.

use std::time::Duration;

use bytes::Bytes;

use crate::ServerId;

/// Why a question has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AskError {
    /// The question never left this node: whatever it asked for was not done.
    #[error("server {0} is not connected")]
    NotConnected(ServerId),
    /// The connection ended, or the time was up, after the question had left: it may have been
    /// carried out.
    #[error("server {0} did not answer")]
    NoAnswer(ServerId),
    /// The other side could not make sense of the question: nothing was done.
    #[error("server {server} refused the question: {why}")]
    Refused {
        /// Who refused.
        server: ServerId,
        /// What it said.
        why: String,
    },
}

/// Told once what came of a question. Runs on a thread of the links: it must not wait.
pub type Answered = Box<dyn FnOnce(Result<Bytes, AskError>) + Send>;

/// Takes questions to other servers.
pub trait Ask: Send + Sync {
    /// Asks `server`; `answered` is called once, after `patience` at the latest, also if the server
    /// is not connected. Never blocks.
    fn ask(&self, server: ServerId, question: Bytes, patience: Duration, answered: Answered);

    /// [`Ask::ask`] for somebody who comes back with [`Ask::turn`] once all who are ready have asked: the
    /// more questions leave together, the less each costs. They may leave before that.
    fn ask_aside(&self, server: ServerId, question: Bytes, patience: Duration, answered: Answered) {
        self.ask(server, question, patience, answered);
    }

    /// Whoever asked aside has come back: those questions leave. Costs next to nothing if there are none.
    fn turn(&self) {}

    /// Whether `server` is connected now. It may not be a moment later.
    fn is_connected(&self, server: ServerId) -> bool;
}

/// Where the answer to a question goes. Dropped without an answer, it refuses.
pub type Reply = Box<dyn FnOnce(Result<Bytes, String>) + Send>;

/// Answers the questions of other servers.
pub trait Serve: Send + Sync {
    /// Answers `question` of `from` through `reply`, now or later, from any thread. Called on a thread
    /// of the links: it must not wait.
    fn serve(&self, from: ServerId, question: Bytes, reply: Reply);

    /// The link to `server` is gone: whatever is kept or still worked at for it may go. Called on a
    /// thread of the links: it must not wait. Whoever keeps nothing has nothing to do.
    fn gone(&self, _server: ServerId) {}
}
