//! Dispatches the requests of other servers: requests about the cluster, and requests of queries.

use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::client::{Responder, RpcHandler};
use super::request::{FOR_CLUSTER, FOR_QUERIES, Request};
use crate::config::ServerId;

/// The refusal of a request that this version does not know. Earlier versions use the same text.
pub(crate) const CANNOT_DECODE: &str = "the request cannot be decoded";

/// Handles requests about the cluster.
pub(crate) trait ClusterHandler: Send + Sync {
    /// Handles a request of `from`. Called on the thread of the links, so it must not block.
    fn handle(self: Arc<Self>, from: ServerId, request: Request, respond: Responder);

    /// The handler of the requests of queries, once it is set.
    fn queries(&self) -> Option<&Arc<dyn RpcHandler>>;
}

/// Serves the requests of other servers, until the node is dropped.
pub struct RpcServer(Weak<dyn ClusterHandler>);

impl RpcServer {
    pub(crate) fn new(handler: Weak<dyn ClusterHandler>) -> RpcServer {
        RpcServer(handler)
    }
}

impl RpcHandler for RpcServer {
    fn handle(&self, from: ServerId, mut request: Bytes, respond: Responder) {
        let Some(cluster) = self.0.upgrade() else { return };
        let first = if request.is_empty() { None } else { Some(request.split_to(1)[0]) };
        match first {
            Some(FOR_QUERIES) => match cluster.queries() {
                Some(queries) => queries.handle(from, request, respond),
                None => respond(Err("this server does not serve queries yet".to_owned())),
            },
            Some(FOR_CLUSTER) => match Request::decode(request) {
                Some(request) => cluster.handle(from, request, respond),
                None => respond(Err(CANNOT_DECODE.to_owned())),
            },
            _ => respond(Err("the first byte of the request is unknown".to_owned())),
        }
    }

    fn disconnected(&self, server: ServerId) {
        let Some(cluster) = self.0.upgrade() else { return };
        cluster.queries().into_iter().for_each(|queries| queries.disconnected(server));
    }
}
