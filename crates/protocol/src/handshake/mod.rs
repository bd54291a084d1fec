//! From the first byte to the first query: versions, and who the client is.
//!
//! Both halves are machines without a socket: bytes in, bytes out, and how far it got. Nothing
//! behind the handshake is consumed, so a query sent in the same packet is not lost.
//! Source: docs/reql-spec.md section 1.1.

mod client;
mod message;
mod refusal;
mod server;

pub use client::{ClientHandshake, ClientStep, HandshakeFailed};
pub use refusal::{OldRefusal, Refusal};
pub use server::{Accounts, Established, Progress, Randomness, ServerHandshake, Step};

/// The first four bytes of a connection: which protocol follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One query at a time; a key instead of users.
    V0_3,
    /// Queries in parallel; a key instead of users.
    V0_4,
    /// Queries in parallel; users with SCRAM-SHA-256.
    V1_0,
}

impl Version {
    /// The number that announces this version.
    #[must_use]
    pub fn magic(self) -> u32 {
        match self {
            Version::V0_3 => 0x5f75_e83e,
            Version::V0_4 => 0x400c_2d20,
            Version::V1_0 => 0x34c2_bdc3,
        }
    }
}

/// Versions that spoke protocol buffers; refused.
const MAGIC_PROTOBUF: [u32; 2] = [0x3f61_ba36, 0x7230_81e1];

/// Wire formats announced after the key in V0_3 and V0_4.
const FORMAT_JSON: u32 = 0x7e69_70c7;
const FORMAT_PROTOBUF: u32 = 0x271f_fc41;

/// The longest client message, its NUL included, and the longest key.
pub const MESSAGE_BYTES_MAX: usize = 2048;
