//! The client for requests of queries.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use super::client::{OnResponse, RpcClient, RpcError};
use super::peers::Peers;
use super::request::FOR_QUERIES;
use crate::config::ServerId;

/// Sends requests of queries, with the first byte that marks them.
pub(crate) struct QueryRpcClient(pub(crate) Arc<Peers>);

impl RpcClient for QueryRpcClient {
    fn call(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        self.0.send(server, with_prefix(&request), timeout, on_response);
    }

    fn call_buffered(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        match self.0.transport() {
            Some(transport) => transport.call_buffered(server, with_prefix(&request), timeout, on_response),
            None => on_response(Err(RpcError::NotConnected(server))),
        }
    }

    fn flush(&self) {
        self.0.transport().into_iter().for_each(|transport| transport.flush());
    }

    fn is_connected(&self, server: ServerId) -> bool {
        self.0.transport().is_some_and(|transport| transport.is_connected(server))
    }
}

/// The request after the byte [`FOR_QUERIES`].
fn with_prefix(request: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(1 + request.len());
    bytes.put_u8(FOR_QUERIES);
    bytes.put_slice(request);
    bytes.freeze()
}
