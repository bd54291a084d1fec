//! A network inside one process: messages arrive in order until somebody closes.

use std::collections::{HashMap, VecDeque};
use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::{Connection, Listener, Network};

/// A network of named addresses. Clones are the same network.
#[derive(Clone, Default)]
pub struct SimNetwork {
    listeners: Arc<Mutex<HashMap<String, Queue<SimConnection>>>>,
}

/// A queue that can be waited on and ended.
struct Queue<T> {
    state: Arc<(Mutex<QueueState<T>>, Condvar)>,
}

struct QueueState<T> {
    items: VecDeque<T>,
    open: bool,
}

struct SimListener {
    address: String,
    arrivals: Queue<SimConnection>,
}

struct SimConnection {
    outgoing: Queue<Vec<u8>>,
    incoming: Queue<Vec<u8>>,
}

impl SimNetwork {
    /// A network with nobody on it.
    pub fn new() -> SimNetwork {
        SimNetwork::default()
    }
}

impl Network for SimNetwork {
    fn listen(&self, address: &str) -> Result<Box<dyn Listener>> {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        if listeners.get(address).is_some_and(Queue::is_open) {
            return Err(Error::from(ErrorKind::AddrInUse));
        }
        let arrivals = Queue::new();
        listeners.insert(address.to_owned(), arrivals.clone());
        Ok(Box::new(SimListener { address: address.to_owned(), arrivals }))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Connection>> {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = || Error::from(ErrorKind::ConnectionRefused);
        let arrivals = listeners.get(address).ok_or_else(refused)?;
        let (there, back) = (Queue::new(), Queue::new());
        let far = SimConnection { outgoing: back.clone(), incoming: there.clone() };
        if !arrivals.push(far) {
            return Err(refused());
        }
        Ok(Box::new(SimConnection { outgoing: there, incoming: back }))
    }
}

impl Listener for SimListener {
    fn accept(&self) -> Result<Box<dyn Connection>> {
        match self.arrivals.pop() {
            Some(connection) => Ok(Box::new(connection)),
            None => Err(Error::from(ErrorKind::NotConnected)),
        }
    }

    fn address(&self) -> String {
        self.address.clone()
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.arrivals.end();
    }
}

impl Connection for SimConnection {
    fn send(&self, message: &[u8]) -> Result<()> {
        if self.outgoing.push(message.to_vec()) { Ok(()) } else { Err(Error::from(ErrorKind::BrokenPipe)) }
    }

    fn receive(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.incoming.pop())
    }

    fn close(&self) {
        self.outgoing.end();
        self.incoming.end();
    }
}

impl Drop for SimConnection {
    fn drop(&mut self) {
        self.close();
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Queue<T> {
        Queue { state: Arc::clone(&self.state) }
    }
}

impl<T> Queue<T> {
    fn new() -> Queue<T> {
        let state = QueueState { items: VecDeque::new(), open: true };
        Queue { state: Arc::new((Mutex::new(state), Condvar::new())) }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_open(&self) -> bool {
        self.lock().open
    }

    /// Adds `item`, unless the queue has ended.
    fn push(&self, item: T) -> bool {
        let mut state = self.lock();
        if state.open {
            state.items.push_back(item);
            self.state.1.notify_one();
        }
        state.open
    }

    /// Waits for an item; `None` once the queue has ended and is empty.
    fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        while state.items.is_empty() && state.open {
            state = self.state.1.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.items.pop_front()
    }

    fn end(&self) {
        self.lock().open = false;
        self.state.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_order_until_the_other_side_closes() {
        let network = SimNetwork::new();
        let listener = network.listen("node:1").unwrap();
        let near = network.connect("node:1").unwrap();
        let far = listener.accept().unwrap();
        near.send(b"first").unwrap();
        near.send(b"second").unwrap();
        near.close();
        assert_eq!(far.receive().unwrap().as_deref(), Some(&b"first"[..]));
        assert_eq!(far.receive().unwrap().as_deref(), Some(&b"second"[..]));
        assert_eq!(far.receive().unwrap(), None);
        assert!(far.send(b"too late").is_err());
    }

    #[test]
    fn an_address_nobody_listens_at_refuses() {
        let network = SimNetwork::new();
        assert!(network.connect("node:1").is_err());
        drop(network.listen("node:1").unwrap());
        assert!(network.connect("node:1").is_err());
    }
}
