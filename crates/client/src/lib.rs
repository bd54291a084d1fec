//! The driver protocol on the client's side.
//!
//! [`session`] is a blocking connection that carries several queries at once, over TCP or TLS ([`transport`]). [`admin`] asks one
//! query at a time on it. [`dial`], [`frame`], [`handshake`] and [`answer`] are the parts of the protocol, for clients with an event loop of
//! their own; [`terms`] has queries as JSON.

#![forbid(unsafe_code)]

pub mod admin;
pub mod answer;
pub mod dial;
pub mod frame;
pub mod handshake;
pub mod session;
pub mod terms;
pub mod transport;
mod trust;

pub use session::{Endpoint, Session};
