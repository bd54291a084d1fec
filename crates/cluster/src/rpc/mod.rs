//! Requests and responses between servers. A request is answered once; long answers are asked for piece by piece, so
//! that the caller sets the pace.
//!
//! Here are the contract ([`RpcClient`], [`RpcHandler`]), the bytes of the cluster's own requests
//! (docs/formats/cluster-request.md), and [`Peers`], which sends them. Requests of queries are opaque here: `query` gives them
//! their meaning. The links between servers (`link`) carry both.

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
pub(crate) use server::ClusterHandler;
pub use server::RpcServer;
