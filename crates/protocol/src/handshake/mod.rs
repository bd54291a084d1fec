//! The handshake: negotiates the protocol version and authenticates the client.
//!
//! Both sides are state machines without a socket: bytes in, bytes and progress out. Bytes after the handshake are
//! not consumed, so a query sent in the same packet is not lost.
//! Source: docs/reql-spec.md section 1.1.

mod client;
mod message;
mod refusal;
mod server;

pub use client::{ClientHandshake, ClientStep, HandshakeFailed};
pub use refusal::{LegacyRefusal, Refusal};
pub use server::{Accounts, Established, Progress, Randomness, ServerHandshake, Step};

/// The protocol version that the first four bytes of a connection announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One query at a time; authenticates with a key, without users.
    V0_3,
    /// Queries in parallel; authenticates with a key, without users.
    V0_4,
    /// Queries in parallel; users with SCRAM-SHA-256.
    V1_0,
}

impl Version {
    /// The magic number that announces this version.
    #[must_use]
    pub fn magic(self) -> u32 {
        match self {
            Version::V0_3 => 0x5f75_e83e,
            Version::V0_4 => 0x400c_2d20,
            Version::V1_0 => 0x34c2_bdc3,
        }
    }
}

/// Versions based on protocol buffers, which are refused.
const MAGIC_PROTOBUF: [u32; 2] = [0x3f61_ba36, 0x7230_81e1];

/// Wire format that the client announces after the key in V0_3 and V0_4.
const FORMAT_JSON: u32 = 0x7e69_70c7;
const FORMAT_PROTOBUF: u32 = 0x271f_fc41;

/// The longest client message, including its NUL, and the longest key.
pub const MESSAGE_BYTES_MAX: usize = 2048;
