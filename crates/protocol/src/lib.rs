//! The client protocol: authentication, queries and responses as bytes.
//!
//! Stands between a socket and a running query and knows neither: bytes in, bytes out. It has no clock, no threads
//! and no random source. The numbers of the wire protocol live here and nowhere else.
//!
//! In the order of a connection: [`handshake`] (with [`scram`]) authenticates the client, [`frame`] cuts the stream
//! into queries, [`request`] reads the type of each, and [`response`] writes the results, or a [`failure`].

#![forbid(unsafe_code)]

pub mod failure;
pub mod frame;
pub mod handshake;
pub mod request;
pub mod response;
pub mod scram;

pub use failure::{Failure, FailureKind};
pub use frame::Token;
