//! SCRAM-SHA-256 (RFC 5802, RFC 7677): proving a password without sending or storing it.
//!
//! Pure: salts and nonces are handed in. The server keeps a [`PasswordRecord`] per user; the
//! client derives the same keys from the password. The handshake carries the messages.

mod attributes;
mod client;
mod name;
mod record;
mod server;

pub use client::{ClientExchange, ClientProof, ServerRefused};
pub use datum::prepare;
pub use name::{escape_name, unescape_name};
pub use record::{DEFAULT_ITERATIONS, PasswordRecord, SALT_BYTES, WrongRecord};
pub use server::{AuthError, Challenge, Decoy, ServerExchange};
