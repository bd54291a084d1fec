//! The driver protocol as seen from the client: frames, handshake, answers, and a plain blocking
//! connection for everything that is not measured.

pub mod admin;
pub mod answer;
pub mod frame;
pub mod handshake;
pub mod terms;
