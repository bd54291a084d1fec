//! The client for requests about the cluster.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use io::task;

use super::client::{OnResponse, PeerTransport, RpcError};
use crate::config::ServerId;

/// Sends requests to other servers and waits for responses. A node that is not part of a cluster has no transport and
/// reaches only itself.
#[derive(Default)]
pub struct Peers {
    own: OnceLock<ServerId>,
    transport: OnceLock<Arc<dyn PeerTransport>>,
}

impl Peers {
    /// Sets the transport. Only the first call has an effect. Must be called before the node is opened, because opening
    /// passes the servers' names to the transport.
    pub fn connect(&self, transport: Arc<dyn PeerTransport>) {
        drop(self.transport.set(transport));
    }

    /// The transport; `None` on a node that is not part of a cluster.
    #[must_use]
    pub fn transport(&self) -> Option<&Arc<dyn PeerTransport>> {
        self.transport.get()
    }

    /// Sets the id of this server. Only the first call has an effect.
    pub(crate) fn set_own(&self, own: ServerId) {
        self.own.get_or_init(|| own);
    }

    /// The id of this server, once it is set.
    pub(crate) fn own(&self) -> Option<ServerId> {
        self.own.get().copied()
    }

    /// Whether requests reach `server` now; a node always reaches itself.
    #[must_use]
    pub fn is_connected(&self, server: ServerId) -> bool {
        self.own() == Some(server) || self.transport().is_some_and(|transport| transport.is_connected(server))
    }

    /// Sends a request to another server. Calls `on_response` with an error at once if there is no transport.
    pub(crate) fn send(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        match self.transport() {
            Some(transport) => transport.call(server, request, timeout, on_response),
            None => on_response(Err(RpcError::NotConnected(server))),
        }
    }

    /// Sends a request to another server and waits for the response.
    pub(crate) fn call(
        &self,
        server: ServerId,
        request: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RpcError> {
        let (sender, receiver) = task::channel();
        self.send(server, request, timeout, Box::new(move |response| drop(sender.send(response))));
        receiver.recv().unwrap_or(Err(RpcError::NoResponse(server)))
    }

    /// Sends requests to other servers concurrently and waits for the responses. Returns them in the order of the
    /// requests; `None` for a server that does not respond within `timeout`.
    pub(crate) fn call_all(&self, requests: Vec<(ServerId, Bytes)>, timeout: Duration) -> Vec<Option<Bytes>> {
        let mut responses = vec![None; requests.len()];
        let (sender, receiver) = task::channel();
        for (nth, (server, request)) in requests.into_iter().enumerate() {
            let sender = sender.clone();
            // The loop below ends once every sender is dropped.
            let on_response =
                move |response: Result<Bytes, RpcError>| drop(sender.send((nth, response.ok())));
            self.send(server, request, timeout, Box::new(on_response));
        }
        drop(sender);
        while let Ok((nth, response)) = receiver.recv() {
            responses[nth] = response;
        }
        responses
    }
}
