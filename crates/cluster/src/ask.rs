//! Questions between nodes: bytes there, bytes back. What they mean belongs to whoever asks and
//! whoever answers (for queries: `query`); how they travel belongs to the links between nodes.
//!
//! A request is answered once. Whatever is long is asked for piece by piece, so that the one who
//! asks sets the pace.

use std::time::Duration;

use bytes::Bytes;

use crate::ServerId;

/// Why a request has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RpcError {
    /// The request never left this node: whatever it asked for was not done.
    #[error("server {0} is not connected")]
    NotConnected(ServerId),
    /// The connection ended, or the time was up, after the request had left: it may have been
    /// carried out.
    #[error("server {0} did not answer")]
    NoAnswer(ServerId),
    /// The other side could not make sense of the request: nothing was done.
    #[error("server {server} refused the request: {why}")]
    Refused {
        /// Who refused.
        server: ServerId,
        /// What it said.
        why: String,
    },
}

/// Told once what came of a request. Runs on a thread of the links: it must not wait.
pub type OnResponse = Box<dyn FnOnce(Result<Bytes, RpcError>) + Send>;

/// Takes requests to other servers.
pub trait RpcClient: Send + Sync {
    /// Asks `server`; `answered` is called once, after `patience` at the latest, also if the server
    /// is not connected. Never blocks.
    fn ask(&self, server: ServerId, request: Bytes, patience: Duration, answered: OnResponse);

    /// [`RpcClient::ask`] for somebody who comes back with [`RpcClient::turn`] once all who are ready have asked: the
    /// more requests leave together, the less each costs. They may leave before that.
    fn call_buffered(&self, server: ServerId, request: Bytes, patience: Duration, answered: OnResponse) {
        self.ask(server, request, patience, answered);
    }

    /// Whoever asked aside has come back: those requests leave. Costs next to nothing if there are none.
    fn turn(&self) {}

    /// Whether `server` is connected now. It may not be a moment later.
    fn is_connected(&self, server: ServerId) -> bool;
}

/// Where the answer to a request goes. Dropped without an answer, it refuses.
pub type Responder = Box<dyn FnOnce(Result<Bytes, String>) + Send>;

/// Answers the requests of other servers.
pub trait RpcHandler: Send + Sync {
    /// Answers `request` of `from` through `reply`, now or later, from any thread. Called on a thread
    /// of the links: it must not wait.
    fn serve(&self, from: ServerId, request: Bytes, reply: Responder);

    /// The link to `server` is gone: whatever is kept or still worked at for it may go. Called on a
    /// thread of the links: it must not wait. Whoever keeps nothing has nothing to do.
    fn gone(&self, _server: ServerId) {}
}
