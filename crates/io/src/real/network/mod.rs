//! TCP: one thread that drives a [`Party`] over sockets.
//!
//! A turn of the loop waits once, reads whatever has arrived on every connection, steps the party, once more if
//! somebody has rung meanwhile, and writes what it ordered with one gathering write for each connection.

mod dial;
mod event;
mod lend;
mod socket;
mod tls;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::TcpListener as StdListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::task;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Waker};

use crate::network::{Bell, ConnectionId, Ends, Happening, Order, Party};
use crate::{Clock, Nanos};
use dial::Dialer;
use event::{LISTENERS_MAX, Readiness, WAKER, id_of, listener_index, listener_token, token_of};
pub use lend::Borrowed;
use lend::{Ringer, Turns};
use socket::{Progress, Socket};
pub use tls::{Tls, TlsError, TlsFile, server_config};

/// Events that one turn takes.
const EVENTS_MAX: usize = 256;
/// How often the party is stepped because somebody has rung before connections are looked at again.
const STEPS_MAX: usize = 16;
/// Memory for so many orders is kept from one step to the next.
const ORDERS_KEPT_MAX: usize = 256;
/// How long a connection that was closed here may take to send its last bytes.
const LINGER: Duration = Duration::from_secs(2);
/// Pause after the system refused to give us a connection (too many open files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A thread that drives one party. Dropped, it closes every connection and waits for the thread.
pub struct NetworkThread {
    bell: Arc<Bell>,
    stop: Arc<AtomicBool>,
    borrowers: Sender<Sender<Borrowed>>,
    thread: Option<JoinHandle<()>>,
}

impl NetworkThread {
    /// Starts a thread called `name` that accepts on `listeners` and dials as `party` wants, inside
    /// TLS if that is given. Fails if the system gives no thread or event queue.
    pub fn start(
        name: &str,
        party: impl Party + 'static,
        bell: Arc<Bell>,
        listeners: Vec<StdListener>,
        tls: Option<Tls>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<NetworkThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut driver: Box<dyn Turns> = Box::new(Driver::new(party, bell.clone(), listeners, tls, clock)?);
        let told = stop.clone();
        let (borrowers, wishes) = channel();
        let thread =
            thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(move || {
                while !told.load(Ordering::SeqCst) {
                    if let Ok(borrower) = wishes.try_recv() {
                        let Some(returned) = lend::lend(driver, &borrower) else { return };
                        driver = returned;
                    }
                    driver.turn();
                }
                driver.end();
            })?;
        Ok(NetworkThread { bell, stop, borrowers, thread: Some(thread) })
    }

    /// Has the caller take this thread's turns until what is returned is dropped; meanwhile the thread sleeps, and does
    /// not end. `None` if it has ended.
    #[must_use]
    pub fn lend(&self) -> Option<Borrowed> {
        let (sender, borrowed) = channel();
        self.borrowers.send(sender).ok()?;
        self.bell.ring();
        borrowed.recv().ok()
    }
}

/// What parties call may recurse with the depth of a document.
const STACK_BYTES: usize = 16 << 20;

impl Drop for NetworkThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so; there is nothing left to wait for.
            drop(thread.join());
        }
    }
}

struct Driver<P> {
    party: P,
    bell: Arc<Bell>,
    ringer: Arc<Ringer>,
    clock: Arc<dyn Clock>,
    tls: Option<Tls>,
    poll: Poll,
    events: Events,
    /// There may be more events than the last turn took.
    has_more_events: bool,
    listeners: Vec<TcpListener>,
    /// Listeners that may have more to accept.
    accepting: Vec<usize>,
    accept_next: Nanos,
    sockets: BTreeMap<ConnectionId, Socket>,
    /// Sockets that had more to read than one turn takes.
    unread: Vec<ConnectionId>,
    /// Sockets to write to: they were given something, have room again, or were closed.
    unsent: Vec<ConnectionId>,
    /// Closed by the party; they go when their last bytes have left, or at this time.
    leaving: Vec<(Nanos, ConnectionId)>,
    accepted_next: u64,
    dialer: Dialer,
    happened: Vec<Happening>,
    orders: Vec<Order>,
    wake_at: Nanos,
    scratch: Vec<u8>,
}

impl<P: Party> Driver<P> {
    fn new(
        party: P,
        bell: Arc<Bell>,
        listeners: Vec<StdListener>,
        tls: Option<Tls>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Driver<P>> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let mut sockets = Vec::new();
        for (i, listener) in listeners.into_iter().take(LISTENERS_MAX).enumerate() {
            listener.set_nonblocking(true)?;
            let mut listener = TcpListener::from_std(listener);
            poll.registry().register(&mut listener, listener_token(i), Interest::READABLE)?;
            sockets.push(listener);
        }
        let ringer = Arc::new(Ringer::new(waker.clone()));
        let rung = ringer.clone();
        bell.wake_with(Box::new(move || rung.ring()));
        Ok(Driver {
            party,
            bell,
            ringer,
            tls,
            events: Events::with_capacity(EVENTS_MAX),
            poll,
            has_more_events: false,
            accepting: (0..sockets.len()).collect(),
            accept_next: Nanos::default(),
            listeners: sockets,
            sockets: BTreeMap::new(),
            unread: Vec::new(),
            unsent: Vec::new(),
            leaving: Vec::new(),
            accepted_next: 0,
            dialer: Dialer::new(waker),
            happened: Vec::new(),
            orders: Vec::new(),
            wake_at: clock.now(),
            clock,
            scratch: vec![0; socket::READ_BYTES],
        })
    }

    /// Waits for at most `patience` until something happens, and tells the party.
    fn take_in_within(&mut self, patience: Duration) {
        self.wait(patience);
        self.resolved();
        self.accept();
        self.read();
        self.step();
    }

    /// Steps the party; what it wants sent waits.
    fn step(&mut self) {
        // Who rings from here on is heard by the next step, or by the next turn.
        self.bell.was_rung();
        self.wake_at = self.party.step(self.clock.now(), &mut self.happened, &mut self.orders);
        self.carry_out();
    }

    /// Sends what the party wants sent, and what it has to say by now because somebody has rung.
    fn send_out(&mut self) {
        for _ in 0..STEPS_MAX {
            if !self.happened.is_empty() || self.bell.is_rung() {
                self.step();
            }
            self.write();
            if self.happened.is_empty() && !self.bell.is_rung() {
                break;
            }
        }
        self.forget_left();
    }

    /// How long nothing has to be done unless something happens; from then on whoever rings the bell rings through.
    fn patience(&self) -> Duration {
        let has_to_read = self.has_more_events || !self.unread.is_empty();
        let is_busy = has_to_read || !self.happened.is_empty() || !self.unsent.is_empty();
        if is_busy || !self.bell.may_sleep() {
            return Duration::ZERO;
        }
        let mut until = self.wake_at;
        if let Some((at, _)) = self.leaving.first() {
            until = until.min(*at);
        }
        if !self.accepting.is_empty() {
            until = until.min(self.accept_next);
        }
        until.since(self.clock.now())
    }

    /// Waits until something happens, at most for `patience`.
    fn wait(&mut self, patience: Duration) {
        self.has_more_events = false;
        // A wait that a signal cut short is a turn in which nothing happened.
        if self.poll.poll(&mut self.events, Some(patience)).is_err() {
            return;
        }
        self.has_more_events = self.events.iter().count() == EVENTS_MAX;
        let mut ready = Vec::new();
        for event in &self.events {
            let token = event.token();
            if token == WAKER {
                continue;
            }
            if let Some(listener) = listener_index(token) {
                if !self.accepting.contains(&listener) {
                    self.accepting.push(listener);
                }
                continue;
            }
            ready.push((id_of(token), Readiness::of(event)));
        }
        for (id, readiness) in ready {
            self.became_ready(id, readiness);
        }
    }

    fn became_ready(&mut self, id: ConnectionId, ready: Readiness) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if ready.writable || ready.failed {
            if socket.is_dialing() {
                let progress = socket.dialed(self.poll.registry(), token_of(id));
                self.note(id, progress);
            } else {
                self.unsent.push(id);
            }
        }
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        socket.is_ending |= ready.ending;
        if (ready.readable || ready.ending) && !self.unread.contains(&id) {
            self.unread.push(id);
        }
    }

    fn resolved(&mut self) {
        for (id, found) in self.dialer.resolved() {
            let dialed = found.and_then(|places| Socket::dial(places, self.tls.as_ref()));
            self.dialed(id, dialed);
        }
    }

    fn dialed(&mut self, id: ConnectionId, dialed: io::Result<Socket>) {
        let registered = dialed.and_then(|mut socket| {
            socket.register(self.poll.registry(), token_of(id))?;
            Ok(socket)
        });
        match registered {
            Ok(socket) => drop(self.sockets.insert(id, socket)),
            Err(error) => self.happened.push(Happening::Closed(id, error.to_string())),
        }
    }

    fn accept(&mut self) {
        if self.clock.now() < self.accept_next {
            return;
        }
        let mut accepting = std::mem::take(&mut self.accepting);
        accepting.retain(|index| self.accept_all(*index));
        self.accepting = accepting;
    }

    /// Accepts until nobody waits. True when the system refused and it must be tried again.
    fn accept_all(&mut self, index: usize) -> bool {
        loop {
            match self.listeners[index].accept() {
                Ok((stream, from)) => {
                    let id = ConnectionId::accepted(self.accepted_next);
                    self.accepted_next += 1;
                    let socket = Socket::accepted(stream, self.tls.as_ref()).and_then(|mut socket| {
                        socket.register(self.poll.registry(), token_of(id))?;
                        Ok(socket)
                    });
                    if let Ok(socket) = socket {
                        let ends = Ends { here: socket.ends().here, there: from.to_string() };
                        self.sockets.insert(id, socket);
                        self.happened.push(Happening::Accepted(id, ends));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    self.accept_next = self.clock.now().after(ACCEPT_PAUSE);
                    return true;
                }
            }
        }
    }

    fn read(&mut self) {
        for id in std::mem::take(&mut self.unread) {
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            let mut arrived = Vec::new();
            let progress = socket.read(&mut self.scratch, &mut arrived);
            if !socket.is_leaving {
                self.happened.extend(arrived.into_iter().map(|bytes| Happening::Arrived(id, bytes)));
            }
            if matches!(progress, Progress::More) {
                self.unread.push(id);
            }
            self.note(id, progress);
        }
    }

    fn carry_out(&mut self) {
        let mut orders = std::mem::take(&mut self.orders);
        for order in orders.drain(..) {
            match order {
                Order::Connect(id, address) => match self.dialer.places_of(id, &address) {
                    Some(places) => {
                        let dialed = Socket::dial(places, self.tls.as_ref());
                        self.dialed(id, dialed);
                    }
                    None => continue,
                },
                Order::Send { connection, bytes, tell } => {
                    if let Some(socket) = self.sockets.get_mut(&connection) {
                        socket.give(bytes, tell);
                        self.unsent.push(connection);
                    }
                }
                Order::Close(id) => {
                    self.dialer.forget(id);
                    if let Some(socket) = self.sockets.get_mut(&id) {
                        socket.is_leaving = true;
                        self.leaving.push((self.clock.now().after(LINGER), id));
                        self.unsent.push(id);
                    }
                }
            }
        }
        orders.shrink_to(ORDERS_KEPT_MAX);
        self.orders = orders;
    }

    fn write(&mut self) {
        let mut unsent = std::mem::take(&mut self.unsent);
        unsent.sort_unstable();
        unsent.dedup();
        for id in unsent {
            if let Some(socket) = self.sockets.get_mut(&id) {
                let progress = socket.write();
                self.note(id, progress);
            }
        }
    }

    /// What came of reading or writing, for the party.
    fn note(&mut self, id: ConnectionId, progress: Progress) {
        let happening = match progress {
            Progress::Nothing | Progress::More => return,
            Progress::Connected => {
                let Some(socket) = self.sockets.get(&id) else { return };
                Happening::Connected(id, socket.ends())
            }
            Progress::Drained => Happening::Drained(id),
            Progress::Over(why) => Happening::Closed(id, why),
        };
        let is_leaving = self.sockets.get(&id).is_none_or(|socket| socket.is_leaving);
        if matches!(happening, Happening::Closed(..)) {
            self.sockets.remove(&id);
        }
        if !is_leaving {
            self.happened.push(happening);
        }
    }

    /// Drops connections closed long enough ago.
    fn forget_left(&mut self) {
        let now = self.clock.now();
        while let Some((at, id)) = self.leaving.first().copied() {
            if self.sockets.contains_key(&id) && at > now {
                break;
            }
            self.sockets.remove(&id);
            self.leaving.remove(0);
        }
    }
}

impl<P: Party> Turns for Driver<P> {
    fn turn(&mut self) {
        self.take_in_within(self.patience());
        self.send_out();
    }

    fn take_in(&mut self) {
        self.take_in_within(Duration::ZERO);
    }

    fn send(&mut self, waker: &task::Waker) -> Duration {
        self.send_out();
        self.ringer.rings_for(waker);
        self.patience()
    }

    fn has_news(&self) -> bool {
        self.bell.is_rung()
    }

    fn events(&self) -> io::Result<OwnedFd> {
        self.poll.registry().as_fd().try_clone_to_owned()
    }

    fn came_back(&mut self) {
        self.ringer.rings_for_nobody();
    }

    fn end(mut self: Box<Self>) {
        self.party.step(self.clock.now(), &mut self.happened, &mut self.orders);
        self.carry_out();
        self.write();
    }
}

#[cfg(test)]
mod tests;
