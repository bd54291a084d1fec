//! The links of one node as a deterministic state machine: it takes events and commands, and returns network commands
//! and effects. It uses no threads, sockets or clocks.
//!
//! [`Machine`] drives the parts: its methods stand here and in `handshake`, which opens and closes links. Each part has
//! its own state and is given the others that it needs. It never calls the machine; it returns what the machine has to
//! do. The parts, each using only those above it:
//!
//! - `command`: the commands of the users of links.
//! - `output`: the network commands and effects that were not taken yet.
//! - `schedule`: the time, and when the machine works next.
//! - `identity`: this server, as it introduces itself.
//! - `fault`: why a connection ends.
//! - `session`: one connection.
//! - `requests`: the requests to one server that wait for their responses.
//! - `peer`: one other server, its link and the data queued for it.
//! - `inbound`: the data frames of a link.
//! - `peers`: all other servers, and which of them have queued data.
//! - `known_servers`: the address book and the names of servers.
//! - `sessions`: all connections.
//! - `bootstrap`: how servers without a cluster make one.
//! - `admission`: whether a server may be linked, as its hello decides.
//! - `refusals`: which refused and failed connections are logged.

mod admission;
mod bootstrap;
mod command;
mod fault;
mod handshake;
mod identity;
mod inbound;
mod known_servers;
mod output;
mod peer;
mod peers;
mod refusals;
mod requests;
mod schedule;
mod session;
mod sessions;

use std::sync::Arc;

use bytes::Bytes;
use io::{ConnectionId, Nanos, NetworkCommand, NetworkEvent, Random};

use super::address_book::AddressBook;
use super::contract::{LinkTimings, LocalServer};
use super::dialer::Dialer;
use super::frame::{Damage, Frame, Item, Kind};
use super::hello::Hello;
use super::outbox::QueueLimits;
use super::parts::Message;
use super::stats::PeerStats;
use crate::ServerId;
use admission::MayAdopt;
use bootstrap::Bootstrap;
pub(super) use command::{Call, Command};
use fault::Fault;
use identity::Identity;
use known_servers::KnownServers;
use output::Output;
pub(super) use output::{Effect, LogLevel};
use peers::Peers;
use refusals::Refusals;
use schedule::Schedule;
use session::{Origin, Session, SessionStage};
use sessions::Sessions;

/// The links of one node.
pub(super) struct Machine {
    identity: Identity,
    schedule: Schedule,
    random: Arc<dyn Random>,
    sessions: Sessions,
    peers: Peers,
    known: KnownServers,
    dialer: Dialer,
    bootstrap: Bootstrap,
    refusals: Refusals,
    /// The number of the next welcome.
    welcome_next: u64,
    is_closed: bool,
    output: Output,
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
        for address in &join {
            dialer.join(address, now);
        }
        let known = KnownServers::new(address_book);
        known.add_to(&mut dialer, local.server, now);
        Machine {
            identity: Identity::new(local, random.next_u64(), started_ms, now),
            schedule: Schedule::new(now, timings),
            random,
            sessions: Sessions::default(),
            peers: Peers::new(limits),
            known,
            dialer,
            bootstrap: Bootstrap::new(&join),
            refusals: Refusals::default(),
            welcome_next: 1,
            is_closed: false,
            output: Output::default(),
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
        self.schedule.set_now(now);
        for event in network_events.drain(..) {
            self.handle_event(event, may_adopt);
        }
        for command in commands.drain(..) {
            self.handle_command(command);
        }
        if now >= self.schedule.tick_at() {
            self.tick();
        }
        self.output.take_effects(effects);
    }

    /// The network commands of the steps since the last call. All data queued for a server in these steps is sent
    /// together.
    pub(super) fn network_commands(&mut self, network_commands: &mut Vec<NetworkCommand>) {
        self.peers.send_all(self.schedule.now(), &mut self.output);
        self.output.take_network_commands(network_commands);
    }

    /// When the machine is to be stepped if there is no event before.
    pub(super) fn wake_at(&self) -> Nanos {
        self.schedule.tick_at()
    }

    fn handle_event(&mut self, event: NetworkEvent, may_adopt: MayAdopt<'_>) {
        match event {
            NetworkEvent::Connected(id, ends) => self.connected(id, ends),
            NetworkEvent::Accepted(id, _) if self.is_closed || self.sessions.is_full() => {
                self.output.close(id);
            }
            NetworkEvent::Accepted(id, ends) => {
                let (stage, now) = (SessionStage::AwaitingHello, self.schedule.now());
                let mut session = Session::new(Origin::Accepted(ends.remote), stage, now);
                session.reached_address = ends.local;
                self.sessions.insert(id, session);
                self.schedule.tick_after(self.schedule.timings().handshake_timeout);
            }
            NetworkEvent::Arrived(id, bytes) => self.received(id, bytes, may_adopt),
            NetworkEvent::Drained(id) => {
                if let Some(server) = self.sessions.get(id).and_then(Session::linked) {
                    self.peers.drained(server, id);
                }
            }
            NetworkEvent::Closed(id, why) => self.connection_closed(id, &why),
        }
    }

    fn handle_command(&mut self, command: Command) {
        let now = self.schedule.now();
        match command {
            Command::Call(call) => self.peers.call(call, &mut self.schedule, &mut self.output),
            Command::Send { to, log_messages } => self.peers.send_log_messages(to, log_messages),
            Command::Respond { to, link, number, result } => self.peers.respond(to, link, number, result),
            Command::Join(address) => {
                self.dialer.join(&address, now);
                self.schedule.tick_now();
            }
            Command::Forget(server) => self.remove_server(server),
            Command::Name(server, name) => self.set_name(server, name),
            Command::Timings(timings) => self.schedule.set_timings(timings),
            Command::AllowBootstrap(permission) => {
                self.bootstrap.set_permission(permission);
                self.schedule.tick_now();
            }
            Command::Bootstrapped(result) => {
                self.bootstrap.finish(result, &mut self.identity, now, &mut self.output);
            }
            Command::Close => self.close(),
        }
    }

    /// Runs all work that depends on time.
    fn tick(&mut self) {
        let is_beat = self.schedule.start_tick();
        self.peers.expire_requests(&mut self.schedule, &mut self.output);
        self.expire_sessions();
        for (link, fault) in self.peers.check_silence(&self.schedule, &mut self.output) {
            self.close_session(link, &fault);
        }
        if is_beat {
            self.peers.send_heartbeats(&self.schedule);
        }
        self.bootstrap.try_bootstrap(&self.identity, self.schedule.now(), &*self.random, &mut self.output);
        self.dial();
    }

    fn dial(&mut self) {
        if self.is_closed {
            return;
        }
        let (now, timings) = (self.schedule.now(), *self.schedule.timings());
        let is_linked = |server: ServerId| self.peers.is_linked(server);
        let due = self.dialer.due(now, &timings, is_linked);
        if let Some(at) = self.dialer.next_at(now, &timings, is_linked) {
            self.schedule.tick_by(at);
        }
        for (id, address) in due {
            let session = Session::new(Origin::Dialed(address.clone()), SessionStage::Dialing, now);
            self.sessions.insert(id, session);
            self.output.dial(id, address);
            self.schedule.tick_after(timings.dial_timeout);
        }
    }

    /// Handles received bytes. Nearly all of them are data frames of a link.
    fn received(&mut self, id: ConnectionId, bytes: Bytes, may_adopt: MayAdopt<'_>) {
        let mut chunk = Some(bytes);
        loop {
            let handled = match self.receive_data(id, chunk.take()) {
                Ok(Some(item)) => self.handle_item(id, item, may_adopt),
                Ok(None) => return,
                Err(damage) => Err(damage.into()),
            };
            if let Err(fault) = handled {
                return self.close_session(id, &fault);
            }
        }
    }

    /// Handles `chunk`, if given, and then all complete data frames of a link. Returns the next item that is
    /// something else; `None` once no complete item is left, or the connection has ended.
    fn receive_data(&mut self, id: ConnectionId, chunk: Option<Bytes>) -> Result<Option<Item>, Damage> {
        let Some(session) = self.sessions.get_mut(id) else { return Ok(None) };
        let peer = session.linked().and_then(|server| self.peers.get_mut(server));
        let count = chunk.as_ref().map_or(0, Bytes::len);
        chunk.into_iter().for_each(|bytes| session.reader.push(bytes));
        let Some(peer) = peer else { return session.reader.next() };
        peer.received(self.schedule.now());
        PeerStats::add(&peer.stats.bytes_in, count);
        peer.receive_data(id, session, &mut self.output)
    }

    fn handle_item(&mut self, id: ConnectionId, item: Item, may_adopt: MayAdopt<'_>) -> Result<(), Fault> {
        match item {
            Item::Preface(versions) => self.versions_received(id, versions),
            Item::Hello(text) => self.hello_received(id, Hello::parse(&text)?, may_adopt),
            Item::Frame(frame) => match frame.kind {
                Kind::Consent => self.consent_received(id),
                Kind::Welcome => self.welcome_received(id, frame.number),
                Kind::Farewell => {
                    self.farewell_received(id, frame.number, &frame.payload);
                    Ok(())
                }
                _ => Ok(self.handle_control(id, frame)?),
            },
        }
    }

    /// Handles a control frame, which is only allowed on a link. Data frames of a connection that is not a link come here
    /// too, and are rejected.
    fn handle_control(&mut self, id: ConnectionId, frame: Frame) -> Result<(), Damage> {
        let session = self.sessions.get_mut(id).ok_or(Damage::OutOfTurn)?;
        let server = session.linked().ok_or(Damage::OutOfTurn)?;
        if frame.kind == Kind::Withdrawn {
            session.assembly.withdraw(frame.number);
            return Ok(());
        }
        let message = session.assembly.take(frame)?;
        PeerStats::add(&self.peers.get_or_add(server).stats.frames_in, 1);
        match message {
            Some(Message { kind: Kind::Heartbeat, flags, number, .. }) => {
                if let Some(waiting) = self.peers.heartbeat_received(server, flags, number) {
                    self.close_session(waiting, &Fault::duplicate());
                }
            }
            Some(Message { kind: Kind::Book, body, .. }) => {
                self.merge_address_book(AddressBook::parse(&body)?)
            }
            Some(_) => return Err(Damage::OutOfTurn),
            None => {}
        }
        Ok(())
    }

    fn merge_address_book(&mut self, address_book: AddressBook) {
        let own = self.identity.server();
        if address_book.is_removed(own) {
            self.output.add(Effect::Removed);
        }
        if self.known.merge(address_book, own, &mut self.dialer, self.schedule.now()) {
            self.known.publish(&mut self.peers, &mut self.output);
            self.close_removed();
            self.schedule.tick_now();
        }
    }

    /// Removes a server permanently: its connections are closed, and new ones are refused.
    fn remove_server(&mut self, server: ServerId) {
        if server != self.identity.server() && self.known.remove(server) {
            self.known.publish(&mut self.peers, &mut self.output);
            self.close_removed();
        }
    }

    /// Sets a server's name, after it was renamed or the catalog was read.
    fn set_name(&mut self, server: ServerId, name: String) {
        if server == self.identity.server() {
            self.identity.set_name(&name);
        } else if let Some(peer) = self.peers.get_mut(server) {
            peer.name.clone_from(&name);
        }
        self.known.set_name(server, name);
    }

    /// Ends every link and fails every request.
    fn close(&mut self) {
        self.is_closed = true;
        for id in self.sessions.ids() {
            self.close_session(id, &Fault::shutting_down(self.identity.name()));
        }
    }
}

#[cfg(test)]
mod tests;
