//! Sends the requests of queries, marked as such.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use super::client::{OnResponse, RpcClient, RpcError};
use super::peers::Peers;
use super::request::FOR_QUERIES;
use crate::config::ServerId;

/// The client of queries.
pub(crate) struct QueryRpcClient(pub(crate) Arc<Peers>);

impl RpcClient for QueryRpcClient {
    fn call(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        self.0.send(server, marked(&request), timeout, on_response);
    }

    fn call_buffered(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        match self.0.transport() {
            Some(transport) => transport.call_buffered(server, marked(&request), timeout, on_response),
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

fn marked(request: &[u8]) -> Bytes {
    let mut marked = BytesMut::with_capacity(1 + request.len());
    marked.put_u8(FOR_QUERIES);
    marked.put_slice(request);
    marked.freeze()
}
