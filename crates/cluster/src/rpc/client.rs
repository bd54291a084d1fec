//! The contract of requests between servers: bytes there, bytes back.

use std::time::Duration;

use bytes::Bytes;
use log::Message;

use crate::config::ServerId;

/// Why a request has no response.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RpcError {
    /// The request never left this node: it was not carried out.
    #[error("server {0} is not connected")]
    NotConnected(ServerId),
    /// The connection ended, or the time was up, after the request had left: it may have been carried out.
    #[error("server {0} did not answer")]
    NoAnswer(ServerId),
    /// The other server could not use the request: nothing was done.
    #[error("server {server} refused the request: {why}")]
    Refused {
        /// The server that refused.
        server: ServerId,
        /// Its reason.
        why: String,
    },
}

/// Receives the outcome of a request, once. Runs on the thread of the links: it must not wait.
pub type OnResponse = Box<dyn FnOnce(Result<Bytes, RpcError>) + Send>;

/// Sends requests to other servers.
pub trait RpcClient: Send + Sync {
    /// Sends a request to `server`. `on_response` is called once, after `timeout` at the latest, also if the server is not
    /// connected. Never blocks.
    fn call(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse);

    /// As [`RpcClient::call`], for a caller that calls [`RpcClient::flush`] once it has made all its requests: the more
    /// requests leave together, the less each costs. They may leave before that.
    fn call_buffered(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        self.call(server, request, timeout, on_response);
    }

    /// Sends all buffered requests. Costs next to nothing if there are none.
    fn flush(&self) {}

    /// Whether `server` is connected now. It may not be a moment later.
    fn is_connected(&self, server: ServerId) -> bool;
}

/// Sends requests, and messages of replicas, to other servers.
pub trait PeerTransport: RpcClient {
    /// Sends messages to replicas on `to`. They may be lost.
    fn send(&self, to: ServerId, messages: Vec<Message>);

    /// Ends the link to a server that was removed from the cluster, and allows no other. Does nothing where servers are not
    /// remembered.
    fn forget(&self, _server: ServerId) {}

    /// Sets how long a server may be silent before its link is closed. Does nothing without a clock.
    fn set_heartbeat(&self, _timeout: Duration) {}

    /// Sets the name of a server, which may be this one. Does nothing where names are not sent.
    fn set_name(&self, _server: ServerId, _name: &str) {}
}

/// Takes the response to a request. A responder that is dropped without a response refuses the request.
pub type Responder = Box<dyn FnOnce(Result<Bytes, String>) + Send>;

/// Handles the requests of other servers.
pub trait RpcHandler: Send + Sync {
    /// Handles `request` of `from`, and responds through `respond`, now or later, from any thread. Called on the thread of
    /// the links: it must not wait.
    fn handle(&self, from: ServerId, request: Bytes, respond: Responder);

    /// The link to `server` was closed: anything kept for it, or still being worked out for it, can go. Called on the
    /// thread of the links: it must not wait.
    fn disconnected(&self, _server: ServerId) {}
}
