//! The traits of RPCs between servers: a request and a response, both opaque bytes.

use std::time::Duration;

use bytes::Bytes;
use log::Message;

use crate::config::ServerId;

/// Why a request has no response.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RpcError {
    /// The request was not sent, so it was not carried out.
    #[error("server {0} is not connected")]
    NotConnected(ServerId),
    /// The connection was lost, or the request timed out, after it was sent: it may have been carried out.
    #[error("server {0} did not respond")]
    NoResponse(ServerId),
    /// The other server refused the request: nothing was done.
    #[error("server {server} refused the request: {why}")]
    Refused {
        server: ServerId,
        /// The reason.
        why: String,
    },
}

/// Receives the result of a request, once. Called on the thread of the links, so it must not block.
pub type OnResponse = Box<dyn FnOnce(Result<Bytes, RpcError>) + Send>;

/// Sends requests to other servers.
pub trait RpcClient: Send + Sync {
    /// Sends a request to `server`. `on_response` is called once, after `timeout` at the latest, also if the server is not
    /// connected. Does not block.
    fn call(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse);

    /// As [`RpcClient::call`], for a caller that calls [`RpcClient::flush`] after its last request: requests that are sent
    /// together cost less each. Buffered requests may be sent before the flush.
    fn call_buffered(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        self.call(server, request, timeout, on_response);
    }

    /// Sends all buffered requests. Costs next to nothing if there are none.
    fn flush(&self) {}

    /// Whether `server` is connected now. The link may be lost at any moment.
    fn is_connected(&self, server: ServerId) -> bool;
}

/// Sends requests and the messages of replicas to other servers.
pub trait PeerTransport: RpcClient {
    /// Sends messages to replicas on `to`. They may be lost.
    fn send(&self, to: ServerId, messages: Vec<Message>);

    /// Closes the link to a server that was removed from the cluster, and refuses further links. By default does
    /// nothing, for transports without an address book.
    fn forget(&self, _server: ServerId) {}

    /// Sets the heartbeat timeout: a link to a server that sends nothing for this long is closed. By default does
    /// nothing, for transports without a clock.
    fn set_heartbeat(&self, _timeout: Duration) {}

    /// Sets the name of a server, which may be this one. By default does nothing, for transports that exchange no names.
    fn set_name(&self, _server: ServerId, _name: &str) {}
}

/// Sends the response to a request. A responder that is dropped without being called refuses the request.
pub type Responder = Box<dyn FnOnce(Result<Bytes, String>) + Send>;

/// Handles the requests of other servers.
pub trait RpcHandler: Send + Sync {
    /// Handles a request of `from` and calls `respond`, now or later, from any thread. Called on the thread of the
    /// links, so it must not block.
    fn handle(&self, from: ServerId, request: Bytes, respond: Responder);

    /// The link to `server` was closed: state kept for it can be dropped, and work for it cancelled. Called on the
    /// thread of the links, so it must not block.
    fn disconnected(&self, _server: ServerId) {}
}
