//! Connections between nodes, for programs that never wait.
//!
//! A [`NetworkHandler`] is told what has happened on its connections and says what is to be done. Who drives
//! it is not its business: a thread with sockets ([`crate::real::NetworkThread`]), or a simulation
//! that cuts cables on purpose ([`crate::sim::SimNetwork`]). Bytes of one direction of a connection
//! arrive in order and once, until the connection ends; nothing is promised of where they are cut.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;

use crate::Nanos;

/// One connection of one party, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

impl ConnectionId {
    const ACCEPTED: u64 = 1 << 63;

    /// The `number`th connection that the party itself dials.
    #[must_use]
    pub fn dialed(number: u64) -> ConnectionId {
        ConnectionId(number & !ConnectionId::ACCEPTED)
    }

    /// The `number`th connection that the network accepted for the party.
    #[must_use]
    pub fn accepted(number: u64) -> ConnectionId {
        ConnectionId(number | ConnectionId::ACCEPTED)
    }

    /// All of it as one number.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// The id that [`ConnectionId::number`] gave.
    pub(crate) fn from_number(number: u64) -> ConnectionId {
        ConnectionId(number)
    }

    /// Whether the other side dialed.
    #[must_use]
    pub fn is_accepted(self) -> bool {
        self.0 & ConnectionId::ACCEPTED != 0
    }
}

/// Between which addresses a connection is, each `address:port`, as this side sees it: where the network
/// translates addresses, the other side sees others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The end of this party.
    pub local: String,
    /// The end of the other one.
    pub remote: String,
}

/// What happened on the network of a party.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkEvent {
    /// A dialed connection stands.
    Connected(ConnectionId, Endpoints),
    /// Somebody dialed.
    Accepted(ConnectionId, Endpoints),
    /// Bytes came, at least one.
    Arrived(ConnectionId, Bytes),
    /// Everything given with [`NetworkCommand::Send`] up to one that asked for it has left this process.
    Drained(ConnectionId),
    /// The connection is over, or never stood; nothing more will happen on it. Not told of a
    /// connection the party closed itself. What TLS refuses begins with [`TLS_FAULT`].
    Closed(ConnectionId, String),
}

/// How the text of a connection begins that TLS has ended here, for want of a certificate for example.
pub const TLS_FAULT: &str = "TLS: ";

/// What a party wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkCommand {
    /// Dial `host:port`. Answered by [`NetworkEvent::Connected`] or [`NetworkEvent::Closed`].
    Connect(ConnectionId, String),
    /// Send these bytes behind those sent before.
    Send {
        /// On which connection; without effect when that is over.
        connection: ConnectionId,
        /// The bytes, in order.
        bytes: Vec<Bytes>,
        /// Whether [`NetworkEvent::Drained`] is wanted once they have left.
        notify_drained: bool,
    },
    /// Send what waits as far as that is possible at once, and end the connection.
    Close(ConnectionId),
}

/// A program of the network.
pub trait NetworkHandler: Send {
    /// Takes note of what has `network_events` (emptying it) at `now`, appends what is to be done to
    /// `commands`, and says when it wants to be called again if nothing happens before. Never waits.
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

/// Tells the driver of a party that another thread has something for it. Rings through to the
/// system only when the driver sleeps.
pub struct LoopWaker {
    state: AtomicU8,
    wake_fn: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl LoopWaker {
    /// A bell nobody has rung; its driver is awake.
    #[must_use]
    pub fn new() -> LoopWaker {
        LoopWaker { state: AtomicU8::new(AWAKE), wake_fn: OnceLock::new() }
    }

    /// Rings: the party will be stepped after this call.
    pub fn wake(&self) {
        if self.state.swap(RUNG, Ordering::SeqCst) == ASLEEP
            && let Some(wake_fn) = self.wake_fn.get()
        {
            wake_fn();
        }
    }

    /// Whether it was rung since this was last asked.
    pub fn take_wake(&self) -> bool {
        self.state.swap(AWAKE, Ordering::SeqCst) == RUNG
    }

    /// Whether it was rung and nobody has asked since.
    pub(crate) fn is_woken(&self) -> bool {
        self.state.load(Ordering::SeqCst) == RUNG
    }

    /// Says how the driver is woken while it sleeps; only the first counts.
    pub(crate) fn set_wake_fn(&self, wake_fn: Box<dyn Fn() + Send + Sync>) {
        drop(self.wake_fn.set(wake_fn));
    }

    /// The driver lies down, or goes on sleeping, unless the bell was rung meanwhile.
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
    fn the_system_hears_only_the_first_ring_of_a_sleep() {
        let (loop_waker, heard) = (LoopWaker::new(), Arc::new(AtomicUsize::new(0)));
        let counted = heard.clone();
        loop_waker.set_wake_fn(Box::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        }));
        loop_waker.wake();
        assert!(!loop_waker.try_sleep(), "rung while awake");
        assert!(loop_waker.take_wake() && !loop_waker.take_wake());
        assert!(loop_waker.try_sleep());
        assert!(loop_waker.try_sleep(), "asleep already");
        loop_waker.wake();
        loop_waker.wake();
        assert_eq!(heard.load(Ordering::SeqCst), 1);
        assert!(loop_waker.take_wake());
    }
}
