//! TCP: a thread that drives a [`NetworkHandler`] over sockets.
//!
//! An iteration of the loop waits once, reads the received bytes of every connection, steps the handler, again if it
//! was woken meanwhile, and writes its output with one vectored write per connection.

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

use crate::network::{ConnectionId, Endpoints, LoopWaker, NetworkCommand, NetworkEvent, NetworkHandler};
use crate::{Clock, Nanos};
use dial::Dialer;
use event::{LISTENERS_MAX, Readiness, WAKER, id_of, listener_index, listener_token, token_of};
pub use lend::BorrowedLoop;
use lend::{EventLoop, WakeTarget};
use socket::{Socket, SocketProgress};
pub use tls::{Tls, TlsError, TlsFile, server_config};

/// Events taken in one iteration.
const EVENTS_MAX: usize = 256;
/// The most steps of the handler, because it was woken, before connections are polled again.
const STEPS_PER_POLL_MAX: usize = 16;
/// The capacity for commands that is kept from one step to the next.
const COMMANDS_CAPACITY_MAX: usize = 256;
/// How long a connection closed here may take to send its last bytes.
const CLOSE_LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause after the system refused to accept a connection (too many open files).
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// A thread that drives one handler. Dropping it closes every connection and waits for the thread.
pub struct NetworkThread {
    loop_waker: Arc<LoopWaker>,
    stop: Arc<AtomicBool>,
    borrowers: Sender<Sender<BorrowedLoop>>,
    thread: Option<JoinHandle<()>>,
}

impl NetworkThread {
    /// Starts a thread called `name` that accepts on `listeners` and dials as `handler` commands, with TLS if that is
    /// given. Fails if the system gives no thread or event queue.
    pub fn start(
        name: &str,
        handler: impl NetworkHandler + 'static,
        loop_waker: Arc<LoopWaker>,
        listeners: Vec<StdListener>,
        tls: Option<Tls>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<NetworkThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut driver: Box<dyn EventLoop> =
            Box::new(Driver::new(handler, loop_waker.clone(), listeners, tls, clock)?);
        let stopping = stop.clone();
        let (borrowers, wishes) = channel();
        let thread =
            thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(move || {
                while !stopping.load(Ordering::SeqCst) {
                    if let Ok(borrower) = wishes.try_recv() {
                        let Some(returned) = lend::lend(driver, &borrower) else { return };
                        driver = returned;
                    }
                    driver.run_once();
                }
                driver.shut_down();
            })?;
        Ok(NetworkThread { loop_waker, stop, borrowers, thread: Some(thread) })
    }

    /// Lends the event loop to the caller until the result is dropped. Meanwhile the thread sleeps, and does not end.
    /// `None` if it has ended.
    #[must_use]
    pub fn lend(&self) -> Option<BorrowedLoop> {
        let (sender, borrowed) = channel();
        self.borrowers.send(sender).ok()?;
        self.loop_waker.wake();
        borrowed.recv().ok()
    }
}

/// A large stack: handlers may recurse with the depth of a document.
const STACK_BYTES: usize = 16 << 20;

impl Drop for NetworkThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.loop_waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic was reported on the thread itself; there is nothing left to wait for.
            drop(thread.join());
        }
    }
}

struct Driver<P> {
    handler: P,
    loop_waker: Arc<LoopWaker>,
    wake_target: Arc<WakeTarget>,
    clock: Arc<dyn Clock>,
    tls: Option<Tls>,
    poll: Poll,
    events: Events,
    /// There may be more events than the last iteration took.
    has_more_events: bool,
    listeners: Vec<TcpListener>,
    /// Listeners with more connections to accept, perhaps.
    accepting: Vec<usize>,
    accept_next: Nanos,
    sockets: BTreeMap<ConnectionId, Socket>,
    /// Sockets with more to read than one iteration takes.
    unread: Vec<ConnectionId>,
    /// Sockets to write to: they got bytes to send, have space again, or were closed.
    unsent: Vec<ConnectionId>,
    /// Closed by the handler; dropped when their last bytes have left, or at this time.
    closing: Vec<(Nanos, ConnectionId)>,
    accepted_next: u64,
    dialer: Dialer,
    network_events: Vec<NetworkEvent>,
    commands: Vec<NetworkCommand>,
    wake_at: Nanos,
    scratch: Vec<u8>,
}

impl<P: NetworkHandler> Driver<P> {
    fn new(
        handler: P,
        loop_waker: Arc<LoopWaker>,
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
        let wake_target = Arc::new(WakeTarget::new(waker.clone()));
        let target = wake_target.clone();
        loop_waker.set_wake_fn(Box::new(move || target.wake()));
        Ok(Driver {
            handler,
            loop_waker,
            wake_target,
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
            closing: Vec::new(),
            accepted_next: 0,
            dialer: Dialer::new(waker),
            network_events: Vec::new(),
            commands: Vec::new(),
            wake_at: clock.now(),
            clock,
            scratch: vec![0; socket::READ_BYTES],
        })
    }

    /// Waits for an event for at most `timeout`, and steps the handler.
    fn receive_within(&mut self, timeout: Duration) {
        self.wait(timeout);
        self.resolved();
        self.accept();
        self.read();
        self.step();
    }

    /// Steps the handler; its output is written later.
    fn step(&mut self) {
        // A wake-up from here on causes another step.
        self.loop_waker.take_wake();
        self.wake_at = self.handler.step(self.clock.now(), &mut self.network_events, &mut self.commands);
        self.execute_commands();
    }

    /// Writes the handler's output, and steps it again while it was woken.
    fn step_and_write(&mut self) {
        for _ in 0..STEPS_PER_POLL_MAX {
            if !self.network_events.is_empty() || self.loop_waker.is_woken() {
                self.step();
            }
            self.write();
            if self.network_events.is_empty() && !self.loop_waker.is_woken() {
                break;
            }
        }
        self.drop_closed();
    }

    /// How long the loop may sleep unless there is an event. If that is not zero, the loop is then marked as asleep, so
    /// that wake-ups make a system call.
    fn timeout(&self) -> Duration {
        let has_to_read = self.has_more_events || !self.unread.is_empty();
        let is_busy = has_to_read || !self.network_events.is_empty() || !self.unsent.is_empty();
        if is_busy || !self.loop_waker.try_sleep() {
            return Duration::ZERO;
        }
        let mut until = self.wake_at;
        if let Some((at, _)) = self.closing.first() {
            until = until.min(*at);
        }
        if !self.accepting.is_empty() {
            until = until.min(self.accept_next);
        }
        until.since(self.clock.now())
    }

    /// Waits for an event for at most `timeout`.
    fn wait(&mut self, timeout: Duration) {
        self.has_more_events = false;
        // A wait interrupted by a signal counts as one without events.
        if self.poll.poll(&mut self.events, Some(timeout)).is_err() {
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
                self.handle_progress(id, progress);
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
            let dialed = found.and_then(|addresses| Socket::dial(addresses, self.tls.as_ref()));
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
            Err(error) => self.network_events.push(NetworkEvent::Closed(id, error.to_string())),
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

    /// Accepts until no connection is waiting. Returns true if the system refused and accepting must be retried.
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
                        let ends = Endpoints { local: socket.endpoints().local, remote: from.to_string() };
                        self.sockets.insert(id, socket);
                        self.network_events.push(NetworkEvent::Accepted(id, ends));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    self.accept_next = self.clock.now().after(ACCEPT_BACKOFF);
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
            if !socket.is_closing {
                self.network_events.extend(arrived.into_iter().map(|bytes| NetworkEvent::Arrived(id, bytes)));
            }
            if matches!(progress, SocketProgress::More) {
                self.unread.push(id);
            }
            self.handle_progress(id, progress);
        }
    }

    fn execute_commands(&mut self) {
        let mut commands = std::mem::take(&mut self.commands);
        for command in commands.drain(..) {
            match command {
                NetworkCommand::Connect(id, address) => match self.dialer.resolve(id, &address) {
                    Some(addresses) => {
                        let dialed = Socket::dial(addresses, self.tls.as_ref());
                        self.dialed(id, dialed);
                    }
                    None => continue,
                },
                NetworkCommand::Send { connection, bytes, notify_drained } => {
                    if let Some(socket) = self.sockets.get_mut(&connection) {
                        socket.queue(bytes, notify_drained);
                        self.unsent.push(connection);
                    }
                }
                NetworkCommand::Close(id) => {
                    self.dialer.cancel(id);
                    if let Some(socket) = self.sockets.get_mut(&id) {
                        socket.is_closing = true;
                        self.closing.push((self.clock.now().after(CLOSE_LINGER_TIMEOUT), id));
                        self.unsent.push(id);
                    }
                }
            }
        }
        commands.shrink_to(COMMANDS_CAPACITY_MAX);
        self.commands = commands;
    }

    fn write(&mut self) {
        let mut unsent = std::mem::take(&mut self.unsent);
        unsent.sort_unstable();
        unsent.dedup();
        for id in unsent {
            if let Some(socket) = self.sockets.get_mut(&id) {
                let progress = socket.write();
                self.handle_progress(id, progress);
            }
        }
    }

    /// Passes the result of reading or writing to the handler.
    fn handle_progress(&mut self, id: ConnectionId, progress: SocketProgress) {
        let event = match progress {
            SocketProgress::Nothing | SocketProgress::More => return,
            SocketProgress::Connected => {
                let Some(socket) = self.sockets.get(&id) else { return };
                NetworkEvent::Connected(id, socket.endpoints())
            }
            SocketProgress::Drained => NetworkEvent::Drained(id),
            SocketProgress::Over(why) => NetworkEvent::Closed(id, why),
        };
        let is_closing = self.sockets.get(&id).is_none_or(|socket| socket.is_closing);
        if matches!(event, NetworkEvent::Closed(..)) {
            self.sockets.remove(&id);
        }
        if !is_closing {
            self.network_events.push(event);
        }
    }

    /// Drops closed connections whose time to send has passed.
    fn drop_closed(&mut self) {
        let now = self.clock.now();
        while let Some((at, id)) = self.closing.first().copied() {
            if self.sockets.contains_key(&id) && at > now {
                break;
            }
            self.sockets.remove(&id);
            self.closing.remove(0);
        }
    }
}

impl<P: NetworkHandler> EventLoop for Driver<P> {
    fn run_once(&mut self) {
        self.receive_within(self.timeout());
        self.step_and_write();
    }

    fn receive(&mut self) {
        self.receive_within(Duration::ZERO);
    }

    fn flush(&mut self, waker: &task::Waker) -> Duration {
        self.step_and_write();
        self.wake_target.set_waker(waker);
        self.timeout()
    }

    fn has_pending_wake(&self) -> bool {
        self.loop_waker.is_woken()
    }

    fn events(&self) -> io::Result<OwnedFd> {
        self.poll.registry().as_fd().try_clone_to_owned()
    }

    fn reclaim(&mut self) {
        self.wake_target.clear_waker();
    }

    fn shut_down(mut self: Box<Self>) {
        self.handler.step(self.clock.now(), &mut self.network_events, &mut self.commands);
        self.execute_commands();
        self.write();
    }
}

#[cfg(test)]
mod tests;
