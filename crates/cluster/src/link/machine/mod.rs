//! The links of one node as a pure machine: what happened and what is wanted in, what is to be done
//! and told out. Knows no threads, sockets or clocks.

mod arrivals;
mod fault;
mod founding;
mod handshake;
mod peer;
mod refusals;
mod requests;
mod session;
mod talk;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use io::{ConnectionId, Nanos, NetworkCommand, NetworkEvent, Random};
use uuid::Uuid;

use super::book::Book;
use super::contract::{LinkTimings, MayFound, Me, PeerInfo};
use super::dialer::Dialer;
use super::log_message::Message;
use super::outbox::QueueLimits;
use super::said::Said;
use super::stats::PeerStats;
use crate::{OnResponse, RpcError, ServerId};
use fault::Fault;
use founding::Founding;
use peer::Peer;
use session::{Origin, Session, Stage};

/// More connections than this are no cluster; who comes then is turned away.
const SESSIONS_MAX: usize = 4096;

/// What users of links want.
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
    /// What a server is called, this one perhaps.
    Name(ServerId, String),
    Timings(LinkTimings),
    MayFound(MayFound),
    Founded(Result<Uuid, String>),
    Close,
}

/// What the machine tells.
pub(super) enum Effect {
    LogMessages(ServerId, Vec<Message>),
    Request {
        from: ServerId,
        link: ConnectionId,
        number: u64,
        request: Bytes,
    },
    Answer(OnResponse, Result<Bytes, RpcError>),
    Connected(Arc<PeerInfo>, Arc<PeerStats>),
    Silent(ServerId),
    Back(ServerId),
    /// The link is over: nothing can be asked of the server.
    Unlinked(ServerId),
    Removed,
    /// This node is to make a cluster, and to say with [`Command::Founded`] what came of it.
    Found(Uuid),
    KeepBook(String),
    Note(Note, String),
}

/// How loudly something is said in the node's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    Info,
    Warning,
}

/// Whether this node may become part of a cluster.
pub(super) type MayAdopt<'a> = &'a dyn Fn(Uuid, &PeerInfo) -> Result<(), String>;

pub(super) struct Machine {
    me: Me,
    incarnation: u64,
    started_ms: u64,
    timings: LinkTimings,
    limits: QueueLimits,
    random: Arc<dyn Random>,
    now: Nanos,
    sessions: BTreeMap<ConnectionId, Session>,
    peers: BTreeMap<ServerId, Peer>,
    dialer: Dialer,
    founding: Founding,
    /// Since when this node belongs to a cluster, or runs.
    member_since: Nanos,
    book: Book,
    /// What the cluster calls its servers; a server may know an older name of itself.
    names: BTreeMap<ServerId, String>,
    /// What was said of whom this node refused, so that it is said once.
    refused: BTreeMap<String, Said>,
    welcome_next: u64,
    tick_at: Nanos,
    beat_at: Nanos,
    is_closed: bool,
    /// Servers to which something is to be sent, each once.
    unsent: Vec<ServerId>,
    orders: Vec<NetworkCommand>,
    effects: Vec<Effect>,
}

/// What a machine starts from.
pub(super) struct Beginning {
    pub(super) me: Me,
    pub(super) join: Vec<String>,
    pub(super) book: Book,
    pub(super) timings: LinkTimings,
    pub(super) limits: QueueLimits,
    pub(super) random: Arc<dyn Random>,
    pub(super) now: Nanos,
    pub(super) started_ms: u64,
}

impl Machine {
    pub(super) fn new(beginning: Beginning) -> Machine {
        let Beginning { me, join, book, timings, limits, random, now, started_ms } = beginning;
        let mut dialer = Dialer::default();
        let founding = Founding::new(&join);
        for address in &join {
            dialer.join(address, now);
        }
        for (server, entry) in book.entries().filter(|(server, entry)| *server != me.server && !entry.removed)
        {
            for address in &entry.addresses {
                dialer.server_at(address, server, now);
            }
        }
        Machine {
            me,
            incarnation: random.next_u64(),
            started_ms,
            timings,
            limits,
            random,
            now,
            sessions: BTreeMap::new(),
            peers: BTreeMap::new(),
            dialer,
            founding,
            member_since: now,
            book,
            names: BTreeMap::new(),
            refused: BTreeMap::new(),
            welcome_next: 1,
            tick_at: now,
            beat_at: now,
            is_closed: false,
            unsent: Vec::new(),
            orders: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Takes note of what has happened and of what is wanted at `now`, emptying both, and puts what is to be told
    /// into `effects`, which is empty.
    pub(super) fn step(
        &mut self,
        now: Nanos,
        happened: &mut Vec<NetworkEvent>,
        wanted: &mut Vec<Command>,
        may_adopt: MayAdopt<'_>,
        effects: &mut Vec<Effect>,
    ) {
        self.now = now;
        for happening in happened.drain(..) {
            self.happened(happening, may_adopt);
        }
        for command in wanted.drain(..) {
            self.wanted(command);
        }
        if now >= self.tick_at {
            self.tick();
        }
        std::mem::swap(&mut self.effects, effects);
    }

    /// What is to be done on the network after the steps since this was last asked: what waits for a server leaves
    /// together.
    pub(super) fn orders(&mut self, orders: &mut Vec<NetworkCommand>) {
        let mut unsent = std::mem::take(&mut self.unsent);
        unsent.sort_unstable();
        for server in unsent.drain(..) {
            if let Some(peer) = self.peers.get_mut(&server) {
                peer.is_unsent = false;
            }
            self.send(server);
        }
        // Sending puts nobody on the list; the memory is kept.
        debug_assert!(self.unsent.is_empty(), "sending has something sent");
        self.unsent = unsent;
        orders.append(&mut self.orders);
    }

    /// When the machine wants to be stepped if nothing happens.
    pub(super) fn wake_at(&self) -> Nanos {
        self.tick_at
    }

    fn happened(&mut self, happening: NetworkEvent, may_adopt: MayAdopt<'_>) {
        match happening {
            NetworkEvent::Connected(id, ends) => self.connected(id, ends),
            NetworkEvent::Accepted(id, _) if self.is_closed || self.sessions.len() >= SESSIONS_MAX => {
                self.orders.push(NetworkCommand::Close(id));
            }
            NetworkEvent::Accepted(id, ends) => {
                let mut session = Session::new(Origin::Accepted(ends.remote), Stage::Greeting, self.now);
                session.reached = ends.local;
                self.sessions.insert(id, session);
                self.tick_by(self.now.after(self.timings.handshake_timeout));
            }
            NetworkEvent::Arrived(id, bytes) => self.arrived(id, bytes, may_adopt),
            NetworkEvent::Drained(id) => self.drained(id),
            NetworkEvent::Closed(id, why) => self.ended(id, &why),
        }
    }

    fn wanted(&mut self, command: Command) {
        match command {
            Command::Call { to, request, timeout, on_response } => {
                self.ask(to, request, timeout, on_response)
            }
            Command::Send { to, log_messages } => self.mail(to, log_messages),
            Command::Respond { to, link, number, result } => self.reply(to, link, number, result),
            Command::Join(address) => {
                self.dialer.join(&address, self.now);
                self.tick_by(self.now);
            }
            Command::Forget(server) => self.forget(server),
            Command::Name(server, name) => self.named(server, name),
            Command::Timings(timings) => {
                self.timings = timings;
                self.beat_at = self.now;
                self.tick_by(self.now);
            }
            Command::MayFound(may_found) => self.set_may_found(may_found),
            Command::Founded(result) => self.founded(result),
            Command::Close => self.close(),
        }
    }

    /// Everything that depends on time.
    fn tick(&mut self) {
        let now = self.now;
        self.tick_at = Nanos(u64::MAX);
        self.expire_questions();
        self.expire_sessions();
        let is_beat = now >= self.beat_at;
        if is_beat {
            // The same moment for all servers: one wake-up serves them all.
            self.beat_at = now.after(self.timings.heartbeat_interval());
        }
        self.listen_for_silence(is_beat);
        self.look_for_founders();
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
            let session = Session::new(Origin::Dialed(address.clone()), Stage::Dialing, now);
            self.sessions.insert(id, session);
            self.orders.push(NetworkCommand::Connect(id, address));
            self.tick_by(now.after(self.timings.dial_timeout));
        }
        if let Some(at) = next_at {
            self.tick_by(at);
        }
    }

    /// Makes sure that there is a tick at `at` or before.
    fn tick_by(&mut self, at: Nanos) {
        self.tick_at = self.tick_at.min(at);
    }

    fn note(&mut self, note: Note, text: String) {
        self.effects.push(Effect::Note(note, text));
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

    /// The servers known have changed: keep them, and tell the others.
    fn book_changed(&mut self) {
        let text = self.book.to_text();
        for (server, peer) in &mut self.peers {
            if peer.link.is_some() {
                peer.outbox.answer(super::frame::Kind::Book, 0, Bytes::from(text.clone()));
                peer.will_send(*server, &mut self.unsent);
            }
        }
        self.effects.push(Effect::KeepBook(text));
    }

    /// A server is gone for good: no link with it, now or ever.
    fn forget(&mut self, server: ServerId) {
        if server == self.me.server || !self.book.remove(server) {
            return;
        }
        self.book_changed();
        self.part_with_removed();
    }

    /// Ends the connections to servers that the book says are gone.
    fn part_with_removed(&mut self) {
        let of_gone = |(id, session): (&ConnectionId, &Session)| {
            let server = session.server().filter(|server| self.book.is_removed(*server))?;
            Some((session.linked().is_some(), *id, server))
        };
        let mut gone: Vec<_> = self.sessions.iter().filter_map(of_gone).collect();
        // Links come last: whoever waits for the place of one gets it when it ends.
        gone.sort_unstable();
        for (is_link, id, server) in gone {
            if is_link {
                // The book that says so goes first.
                self.send(server);
            }
            self.dismiss(id, &Fault::removed(self.name_of(server)));
        }
        let removed: Vec<ServerId> =
            self.book.entries().filter(|(_, entry)| entry.removed).map(|(server, _)| server).collect();
        for server in removed {
            self.dialer.forget(server);
        }
    }

    fn name_of(&self, server: ServerId) -> String {
        let in_book = || self.book.entry(server).map(|entry| &entry.name);
        let known = self.names.get(&server).or_else(in_book).map(String::as_str).unwrap_or_default();
        format!("\"{known}\" {server}")
    }

    /// Ends every link and answers every request.
    fn close(&mut self) {
        self.is_closed = true;
        let ids: Vec<ConnectionId> = self.sessions.keys().copied().collect();
        for id in ids {
            self.dismiss(id, &Fault::shutting_down(&self.me.name));
        }
    }
}

#[cfg(test)]
mod tests;
