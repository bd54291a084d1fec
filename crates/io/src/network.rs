//! Connections between nodes: whole messages, in order, until the connection ends.
//!
//! Thin on purpose: framing is here, meaning and retries are not.

use std::io::Result;

/// A way to reach other nodes and to be reached.
pub trait Network: Send + Sync {
    /// Accepts connections at `address` (`host:port`).
    fn listen(&self, address: &str) -> Result<Box<dyn Listener>>;

    /// Connects to a listener at `address`.
    fn connect(&self, address: &str) -> Result<Box<dyn Connection>>;
}

/// Accepts connections until dropped.
pub trait Listener: Send + Sync {
    /// Waits for the next connection.
    fn accept(&self) -> Result<Box<dyn Connection>>;

    /// The address others connect to, with the real port if `:0` was asked for.
    fn address(&self) -> String;
}

/// One ordered, reliable, two-way stream of messages.
pub trait Connection: Send + Sync {
    /// Sends one message. Returning says nothing about its arrival.
    fn send(&self, message: &[u8]) -> Result<()>;

    /// Waits for the next message; `None` when the other side has closed.
    fn receive(&self) -> Result<Option<Vec<u8>>>;

    /// Ends the connection in both directions and wakes a waiting `receive`.
    fn close(&self);
}
