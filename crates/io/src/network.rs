//! Connections between nodes, for code that never blocks.
//!
//! A [`NetworkHandler`] receives events of its connections and returns commands. It is driven by a thread with sockets
//! ([`crate::real::NetworkThread`]), or by a simulation that cuts connections on purpose ([`crate::sim::SimNetwork`]).
//! Bytes in one direction of a connection arrive in order and once, until the connection ends; how they are divided
//! into events is not defined.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;

use crate::Nanos;

/// The id of a connection of a handler; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

impl ConnectionId {
    const ACCEPTED: u64 = 1 << 63;

    /// The `number`th connection that the handler itself dials.
    #[must_use]
    pub fn dialed(number: u64) -> ConnectionId {
        ConnectionId(number & !ConnectionId::ACCEPTED)
    }

    /// The `number`th connection that the network accepted for the handler.
    #[must_use]
    pub fn accepted(number: u64) -> ConnectionId {
        ConnectionId(number | ConnectionId::ACCEPTED)
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// The id for a result of [`ConnectionId::number`].
    pub(crate) fn from_number(number: u64) -> ConnectionId {
        ConnectionId(number)
    }
}

/// The two addresses of a connection, each `address:port`, as this side sees them. With network address translation,
/// the other side sees others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The address of this side.
    pub local: String,
    /// The address of the other side.
    pub remote: String,
}

/// An event on the network of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkEvent {
    /// A dialed connection is established.
    Connected(ConnectionId, Endpoints),
    /// The other side dialed, and the connection was accepted.
    Accepted(ConnectionId, Endpoints),
    /// At least one byte arrived.
    Arrived(ConnectionId, Bytes),
    /// Everything sent by [`NetworkCommand::Send`], up to a command with `notify_drained`, has left this process.
    Drained(ConnectionId),
    /// The connection has ended, or could not be established, for this reason; it has no more events. Not sent for a
    /// connection that the handler closed itself. A reason given by TLS begins with [`TLS_FAULT`].
    Closed(ConnectionId, String),
}

/// The prefix of the reason when TLS on this side ended a connection, for example because of a missing certificate.
pub const TLS_FAULT: &str = "TLS: ";

/// A command of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkCommand {
    /// Dial `host:port`. Results in [`NetworkEvent::Connected`] or [`NetworkEvent::Closed`].
    Connect(ConnectionId, String),
    /// Send these bytes after those sent before.
    Send {
        /// The connection. Ignored if it has ended.
        connection: ConnectionId,
        /// The bytes, in order.
        bytes: Vec<Bytes>,
        /// Whether to send [`NetworkEvent::Drained`] once the bytes have left.
        notify_drained: bool,
    },
    /// Send pending bytes as far as that is possible at once, and end the connection.
    Close(ConnectionId),
}

/// A state machine that handles the events of its connections.
pub trait NetworkHandler: Send {
    /// Handles the events in `network_events` at time `now` and empties it, appends commands to `commands`, and returns
    /// when it wants to be called again if there is no event before. Never blocks.
    fn step(
        &mut self,
        now: Nanos,
        network_events: &mut Vec<NetworkEvent>,
        commands: &mut Vec<NetworkCommand>,
    ) -> Nanos;
}

const AWAKE: u8 = 0;
const RUNG: u8 = 1;
const ASLEEP: u8 = 2;

/// Wakes the event loop that drives a handler when another thread has work for the handler. Makes a system call only if
/// the loop sleeps.
pub struct LoopWaker {
    state: AtomicU8,
    wake_fn: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl LoopWaker {
    /// A waker whose event loop is awake and was not woken.
    #[must_use]
    pub fn new() -> LoopWaker {
        LoopWaker { state: AtomicU8::new(AWAKE), wake_fn: OnceLock::new() }
    }

    /// Wakes the loop: the handler will be stepped after this call.
    pub fn wake(&self) {
        if self.state.swap(RUNG, Ordering::SeqCst) == ASLEEP
            && let Some(wake_fn) = self.wake_fn.get()
        {
            wake_fn();
        }
    }

    /// Whether it was woken since the last call of this method.
    pub fn take_wake(&self) -> bool {
        self.state.swap(AWAKE, Ordering::SeqCst) == RUNG
    }

    /// Whether it was woken and [`LoopWaker::take_wake`] was not called since.
    pub(crate) fn is_woken(&self) -> bool {
        self.state.load(Ordering::SeqCst) == RUNG
    }

    /// Sets the function that wakes the sleeping loop. Only the first call counts.
    pub(crate) fn set_wake_fn(&self, wake_fn: Box<dyn Fn() + Send + Sync>) {
        drop(self.wake_fn.set(wake_fn));
    }

    /// Marks the loop as asleep, unless it was woken meanwhile. Returns whether it may sleep.
    pub(crate) fn try_sleep(&self) -> bool {
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst) != Err(RUNG)
    }
}

impl Default for LoopWaker {
    fn default() -> LoopWaker {
        LoopWaker::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn only_the_first_wake_of_a_sleep_makes_a_call() {
        let (loop_waker, calls) = (LoopWaker::new(), Arc::new(AtomicUsize::new(0)));
        let counter = calls.clone();
        loop_waker.set_wake_fn(Box::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        }));
        loop_waker.wake();
        assert!(!loop_waker.try_sleep(), "woken while awake");
        assert!(loop_waker.take_wake() && !loop_waker.take_wake());
        assert!(loop_waker.try_sleep());
        assert!(loop_waker.try_sleep(), "asleep already");
        loop_waker.wake();
        loop_waker.wake();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert!(loop_waker.take_wake());
    }
}
