//! The driver protocol on the client's side: frames, handshake, responses, and a simple blocking connection for
//! unmeasured queries.

pub mod admin;
pub mod answer;
pub mod frame;
pub mod handshake;
pub mod terms;
