//! SCRAM-SHA-256 (RFC 5802, RFC 7677): proves a password without sending or storing it.
//!
//! Pure functions: salts and nonces are passed in. The server keeps a [`PasswordRecord`] per user; the client
//! derives the same keys from the password. The handshake transports the messages.

mod attributes;
mod client;
mod name;
mod record;
mod server;

pub use client::{ClientExchange, ClientProof, ServerRefused};
pub use datum::saslprep;
pub use name::{escape_name, unescape_name};
pub use record::{DEFAULT_ITERATIONS, PasswordRecord, SALT_BYTES, WrongRecord};
pub use server::{AuthError, Challenge, Decoy, ServerExchange};
