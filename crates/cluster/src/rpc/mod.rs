//! RPCs between servers. Every request has one response. A long result takes several requests, so that the caller sets the
//! pace.
//!
//! - [`RpcClient`], [`PeerTransport`], [`RpcHandler`] (`client`): the traits. `node::inbound` implements the
//!   transport with `link`, and calls the handler.
//! - [`Request`] and `response`: the requests about the cluster and their bytes (docs/formats/cluster-request.md). `copy`,
//!   `split_points` and `field` are parts of that format.
//! - [`Peers`]: sends requests to other servers and waits for responses.
//! - [`RpcServer`]: dispatches requests of other servers to the [`ClusterHandler`], which `node` implements, or to the
//!   handler of queries.
//! - [`QueryRpcClient`]: sends the requests of queries. Their content is opaque here; `query` defines it.
//!
//! This room has no locks.

mod client;
pub(crate) mod copy;
pub(crate) mod field;
mod peers;
mod query_client;
pub(crate) mod request;
pub(crate) mod response;
mod server;
pub(crate) mod split_points;

pub use client::{OnResponse, PeerTransport, Responder, RpcClient, RpcError, RpcHandler};
pub use peers::Peers;
pub(crate) use query_client::QueryRpcClient;
pub(crate) use request::Request;
pub use server::RpcServer;
pub(crate) use server::{CANNOT_DECODE, ClusterHandler};
