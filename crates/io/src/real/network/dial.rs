//! Resolves `host:port` to addresses without blocking the event loop.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use mio::Waker;

use crate::network::ConnectionId;

type Resolved = (ConnectionId, io::Result<Vec<SocketAddr>>);

/// Looks up names, each on its own thread, because the system's resolver blocks.
pub(super) struct Dialer {
    waker: Arc<Waker>,
    sender: Sender<Resolved>,
    receiver: Receiver<Resolved>,
    waiting: HashSet<ConnectionId>,
}

impl Dialer {
    pub(super) fn new(waker: Arc<Waker>) -> Dialer {
        let (sender, receiver) = channel();
        Dialer { waker, sender, receiver, waiting: HashSet::new() }
    }

    /// The address, if it is numeric; otherwise it is looked up, and returned later by [`Dialer::resolved`].
    pub(super) fn resolve(&mut self, id: ConnectionId, address: &str) -> Option<Vec<SocketAddr>> {
        if let Ok(address) = address.parse() {
            return Some(vec![address]);
        }
        self.waiting.insert(id);
        let (sender, waker, name) = (self.sender.clone(), self.waker.clone(), address.to_owned());
        let look_up = move || {
            let found = name.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            let found = found.and_then(|addresses| match addresses.is_empty() {
                true => Err(io::Error::new(ErrorKind::NotFound, "the name has no address")),
                false => Ok(addresses),
            });
            // If the driver has ended, the result is of no use and the errors are ignored.
            drop(sender.send((id, found)));
            drop(waker.wake());
        };
        if let Err(error) = thread::Builder::new().name("resolver".to_owned()).spawn(look_up) {
            drop(self.sender.send((id, Err(error))));
            drop(self.waker.wake());
        }
        None
    }

    /// The results of lookups since the last call, except for cancelled ones.
    pub(super) fn resolved(&mut self) -> Vec<Resolved> {
        let found: Vec<Resolved> = self.receiver.try_iter().collect();
        found.into_iter().filter(|(id, _)| self.waiting.remove(id)).collect()
    }

    /// Cancels the lookup of a connection.
    pub(super) fn cancel(&mut self, id: ConnectionId) {
        self.waiting.remove(&id);
    }
}
