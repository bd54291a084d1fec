//! Client bytes: who is there, what they ask, how they are answered.
//!
//! Stands between a socket and a running query and knows neither: bytes in, bytes out, no
//! clock, no threads, no chance of its own. Wire numbers live here and nowhere else.
//!
//! In the order of a connection: [`handshake`] (with [`scram`]) says who the client is,
//! [`frame`] cuts the stream into queries, [`request`] tells what each wants, [`response`]
//! writes what it gets, a [`failure`] among it.

#![forbid(unsafe_code)]

pub mod failure;
pub mod frame;
pub mod handshake;
pub mod request;
pub mod response;
pub mod scram;

pub use failure::{Failure, FailureKind};
pub use frame::Token;
