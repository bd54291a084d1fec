//! The links of one node as a deterministic state machine: it takes events and commands, and returns network commands
//! and effects. It uses no threads, sockets or clocks.

mod bootstrap;
mod fault;
mod handshake;
mod inbound;
mod outbound;
mod peer;
mod refusals;
mod requests;
mod session;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use io::{ConnectionId, Nanos, NetworkCommand, NetworkEvent, Random};
use uuid::Uuid;

use super::address_book::AddressBook;
use super::contract::{BootstrapPermission, LinkTimings, LocalServer, PeerInfo};
use super::dialer::Dialer;
use super::log_message::Message;
use super::log_once::LogOnce;
use super::outbox::QueueLimits;
use super::stats::PeerStats;
use crate::{OnResponse, RpcError, ServerId};
use bootstrap::Bootstrap;
use fault::Fault;
use peer::Peer;
use session::{Origin, Session, SessionStage};

/// The most connections. Further ones are closed: a cluster does not have this many servers.
const SESSIONS_MAX: usize = 4096;

/// A command of the users of links.
pub(super) enum Command {
    Call {
        to: ServerId,
        request: Bytes,
        timeout: Duration,
        on_response: OnResponse,
    },
    Send {
        to: ServerId,
        log_messages: Vec<Message>,
    },
    /// The response to a request that `to` sent on `link`.
    Respond {
        to: ServerId,
        link: ConnectionId,
        number: u64,
        result: Result<Bytes, String>,
    },
    Join(String),
    Forget(ServerId),
    /// Sets the name of a server, which may be this one.
    Name(ServerId, String),
    Timings(LinkTimings),
    AllowBootstrap(BootstrapPermission),
    Bootstrapped(Result<Uuid, String>),
    Close,
}

/// An effect of a step, for the users of links.
pub(super) enum Effect {
    LogMessages(ServerId, Vec<Message>),
    Request {
        from: ServerId,
        link: ConnectionId,
        number: u64,
        request: Bytes,
    },
    Response(OnResponse, Result<Bytes, RpcError>),
    Connected(Arc<PeerInfo>, Arc<PeerStats>),
    Silent(ServerId),
    Back(ServerId),
    /// The link has ended: no requests can be sent to the server.
    Unlinked(ServerId),
    Removed,
    /// This node is to make a cluster. [`Command::Bootstrapped`] brings the result.
    Bootstrap(Uuid),
    StoreAddressBook(String),
    Log(LogLevel, String),
}

/// The level of a line in the node's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogLevel {
    Info,
    Warning,
}

/// Asks whether this node may become a member of a cluster.
pub(super) type MayAdopt<'a> = &'a dyn Fn(Uuid, &PeerInfo) -> Result<(), String>;

pub(super) struct Machine {
    local: LocalServer,
    incarnation: u64,
    started_ms: u64,
    timings: LinkTimings,
    limits: QueueLimits,
    random: Arc<dyn Random>,
    now: Nanos,
    sessions: BTreeMap<ConnectionId, Session>,
    peers: BTreeMap<ServerId, Peer>,
    dialer: Dialer,
    bootstrap: Bootstrap,
    /// When this node became a member of a cluster, or was started.
    member_since: Nanos,
    address_book: AddressBook,
    /// The current names of servers. They take precedence over the names in hellos, which may be older.
    names: BTreeMap<ServerId, String>,
    /// The refusals that were logged, by server or host.
    refused: BTreeMap<String, LogOnce>,
    welcome_next: u64,
    tick_at: Nanos,
    beat_at: Nanos,
    is_closed: bool,
    /// Servers with queued data to send, each once.
    unsent: Vec<ServerId>,
    network_commands: Vec<NetworkCommand>,
    effects: Vec<Effect>,
}

/// The initial state of a machine.
pub(super) struct MachineOptions {
    pub(super) local: LocalServer,
    pub(super) join: Vec<String>,
    pub(super) address_book: AddressBook,
    pub(super) timings: LinkTimings,
    pub(super) limits: QueueLimits,
    pub(super) random: Arc<dyn Random>,
    pub(super) now: Nanos,
    pub(super) started_ms: u64,
}

impl Machine {
    pub(super) fn new(options: MachineOptions) -> Machine {
        let MachineOptions { local, join, address_book, timings, limits, random, now, started_ms } = options;
        let mut dialer = Dialer::default();
        let bootstrap = Bootstrap::new(&join);
        for address in &join {
            dialer.join(address, now);
        }
        for (server, entry) in
            address_book.entries().filter(|(server, entry)| *server != local.server && !entry.removed)
        {
            for address in &entry.addresses {
                dialer.server_at(address, server, now);
            }
        }
        Machine {
            local,
            incarnation: random.next_u64(),
            started_ms,
            timings,
            limits,
            random,
            now,
            sessions: BTreeMap::new(),
            peers: BTreeMap::new(),
            dialer,
            bootstrap,
            member_since: now,
            address_book,
            names: BTreeMap::new(),
            refused: BTreeMap::new(),
            welcome_next: 1,
            tick_at: now,
            beat_at: now,
            is_closed: false,
            unsent: Vec::new(),
            network_commands: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Handles the events and commands at `now`, emptying both, and puts the effects into `effects`, which is empty.
    pub(super) fn step(
        &mut self,
        now: Nanos,
        network_events: &mut Vec<NetworkEvent>,
        commands: &mut Vec<Command>,
        may_adopt: MayAdopt<'_>,
        effects: &mut Vec<Effect>,
    ) {
        self.now = now;
        for event in network_events.drain(..) {
            self.handle_event(event, may_adopt);
        }
        for command in commands.drain(..) {
            self.handle_command(command);
        }
        if now >= self.tick_at {
            self.tick();
        }
        std::mem::swap(&mut self.effects, effects);
    }

    /// The network commands of the steps since the last call. All data queued for a server in these steps is sent
    /// together.
    pub(super) fn network_commands(&mut self, network_commands: &mut Vec<NetworkCommand>) {
        let mut unsent = std::mem::take(&mut self.unsent);
        unsent.sort_unstable();
        for server in unsent.drain(..) {
            if let Some(peer) = self.peers.get_mut(&server) {
                peer.is_unsent = false;
            }
            self.send(server);
        }
        // Sending does not queue data for another server. The vector is reused.
        debug_assert!(self.unsent.is_empty(), "sending has something sent");
        self.unsent = unsent;
        network_commands.append(&mut self.network_commands);
    }

    /// When the machine is to be stepped if there is no event before.
    pub(super) fn wake_at(&self) -> Nanos {
        self.tick_at
    }

    fn handle_event(&mut self, event: NetworkEvent, may_adopt: MayAdopt<'_>) {
        match event {
            NetworkEvent::Connected(id, ends) => self.connected(id, ends),
            NetworkEvent::Accepted(id, _) if self.is_closed || self.sessions.len() >= SESSIONS_MAX => {
                self.network_commands.push(NetworkCommand::Close(id));
            }
            NetworkEvent::Accepted(id, ends) => {
                let mut session =
                    Session::new(Origin::Accepted(ends.remote), SessionStage::AwaitingHello, self.now);
                session.reached_address = ends.local;
                self.sessions.insert(id, session);
                self.tick_by(self.now.after(self.timings.handshake_timeout));
            }
            NetworkEvent::Arrived(id, bytes) => self.received(id, bytes, may_adopt),
            NetworkEvent::Drained(id) => self.drained(id),
            NetworkEvent::Closed(id, why) => self.connection_closed(id, &why),
        }
    }

    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Call { to, request, timeout, on_response } => {
                self.call(to, request, timeout, on_response)
            }
            Command::Send { to, log_messages } => self.send_log_messages(to, log_messages),
            Command::Respond { to, link, number, result } => self.respond(to, link, number, result),
            Command::Join(address) => {
                self.dialer.join(&address, self.now);
                self.tick_by(self.now);
            }
            Command::Forget(server) => self.remove_server(server),
            Command::Name(server, name) => self.set_name(server, name),
            Command::Timings(timings) => {
                self.timings = timings;
                self.beat_at = self.now;
                self.tick_by(self.now);
            }
            Command::AllowBootstrap(permission) => self.set_bootstrap_permission(permission),
            Command::Bootstrapped(result) => self.bootstrapped(result),
            Command::Close => self.close(),
        }
    }

    /// Runs all work that depends on time.
    fn tick(&mut self) {
        let now = self.now;
        self.tick_at = Nanos(u64::MAX);
        self.expire_requests();
        self.expire_sessions();
        let is_beat = now >= self.beat_at;
        if is_beat {
            // All servers have the same time of the next heartbeat, so that one wake-up serves them all.
            self.beat_at = now.after(self.timings.heartbeat_interval());
        }
        self.check_silence(is_beat);
        self.try_bootstrap();
        self.dial();
        self.tick_by(self.beat_at);
    }

    fn dial(&mut self) {
        if self.is_closed {
            return;
        }
        let (peers, now) = (&self.peers, self.now);
        let is_linked = |server: ServerId| peers.get(&server).is_some_and(|peer| peer.link.is_some());
        let due = self.dialer.due(now, &self.timings, is_linked);
        let next_at = self.dialer.next_at(now, &self.timings, is_linked);
        for (id, address) in due {
            let session = Session::new(Origin::Dialed(address.clone()), SessionStage::Dialing, now);
            self.sessions.insert(id, session);
            self.network_commands.push(NetworkCommand::Connect(id, address));
            self.tick_by(now.after(self.timings.dial_timeout));
        }
        if let Some(at) = next_at {
            self.tick_by(at);
        }
    }

    /// Makes sure that there is a tick at `at` or earlier.
    fn tick_by(&mut self, at: Nanos) {
        self.tick_at = self.tick_at.min(at);
    }

    fn log(&mut self, level: LogLevel, text: String) {
        self.effects.push(Effect::Log(level, text));
    }

    fn peer(&mut self, server: ServerId) -> &mut Peer {
        let limits = self.limits;
        self.peers.entry(server).or_insert_with(|| Peer::new(limits))
    }

    fn will_send(&mut self, server: ServerId) {
        if let Some(peer) = self.peers.get_mut(&server) {
            peer.will_send(server, &mut self.unsent);
        }
    }

    /// The address book has changed: stores it and sends it to the linked servers.
    fn address_book_changed(&mut self) {
        let text = self.address_book.to_text();
        for (server, peer) in &mut self.peers {
            if peer.link.is_some() {
                peer.outbox.respond(super::frame::Kind::Book, 0, Bytes::from(text.clone()));
                peer.will_send(*server, &mut self.unsent);
            }
        }
        self.effects.push(Effect::StoreAddressBook(text));
    }

    /// Removes a server permanently: its connections are closed, and new ones are refused.
    fn remove_server(&mut self, server: ServerId) {
        if server == self.local.server || !self.address_book.remove(server) {
            return;
        }
        self.address_book_changed();
        self.close_removed();
    }

    /// Closes the connections to servers that the address book lists as removed.
    fn close_removed(&mut self) {
        let of_removed = |(id, session): (&ConnectionId, &Session)| {
            let server = session.server().filter(|server| self.address_book.is_removed(*server))?;
            Some((session.linked().is_some(), *id, server))
        };
        let mut to_close: Vec<_> = self.sessions.iter().filter_map(of_removed).collect();
        // Close links last: a connection that waits to replace a link would become the link.
        to_close.sort_unstable();
        for (is_link, id, server) in to_close {
            if is_link {
                // Send the address book with the removal before the farewell.
                self.send(server);
            }
            self.close_session(id, &Fault::removed(self.name_of(server)));
        }
        let removed: Vec<ServerId> = self
            .address_book
            .entries()
            .filter(|(_, entry)| entry.removed)
            .map(|(server, _)| server)
            .collect();
        for server in removed {
            self.dialer.forget(server);
        }
    }

    fn name_of(&self, server: ServerId) -> String {
        let in_address_book = || self.address_book.entry(server).map(|entry| &entry.name);
        let known = self.names.get(&server).or_else(in_address_book).map(String::as_str).unwrap_or_default();
        format!("\"{known}\" {server}")
    }

    /// Ends every link and fails every request.
    fn close(&mut self) {
        self.is_closed = true;
        let ids: Vec<ConnectionId> = self.sessions.keys().copied().collect();
        for id in ids {
            self.close_session(id, &Fault::shutting_down(&self.local.name));
        }
    }
}

#[cfg(test)]
mod tests;
