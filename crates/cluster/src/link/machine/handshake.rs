//! How two servers come to have one link: hello, consent, welcome, farewell (docs/formats/link.md).

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use io::{ConnectionId, Endpoints, NetworkCommand, TLS_FAULT};

use super::fault::{Fault, Reason};
use super::founding::Dialed;
use super::peer::Probe;
use super::session::{Origin, Stage};
use super::{Effect, Machine, MayAdopt, Note};
use crate::ServerId;
use crate::link::book::BookEntry;
use crate::link::frame::{self, Kind, VERSIONS, Versions, flag};
use crate::link::hello::Hello;

const PROGRAM: &str = concat!("rekindle ", env!("CARGO_PKG_VERSION"));

impl Machine {
    pub(super) fn connected(&mut self, id: ConnectionId, ends: Endpoints) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.reached = ends.remote;
        session.stage = Stage::Greeting;
        session.since = self.now;
        self.tick_by(self.now.after(self.timings.handshake_timeout));
        self.send_hello(id);
    }

    pub(super) fn send_hello(&mut self, id: ConnectionId) {
        let interval_ms = self.timings.heartbeat_interval().as_millis();
        let expects: Option<Vec<ServerId>> = self.expects().map(|servers| servers.into_iter().collect());
        let accepted = self.sessions.get(&id).filter(|session| matches!(session.origin, Origin::Accepted(_)));
        let reached_at = accepted.map(|session| session.reached.clone());
        let found = expects.as_ref().map(|_| self.found());
        let hello = Hello {
            cluster: self.me.cluster,
            server: self.me.server,
            incarnation: self.incarnation,
            started_ms: self.started_ms,
            name: self.me.name.clone(),
            tags: self.me.tags.clone(),
            addresses: self.me.addresses.clone(),
            port: self.me.port,
            is_proxy: self.me.is_proxy,
            program: PROGRAM.to_owned(),
            heartbeat_ms: u64::try_from(interval_ms).unwrap_or(u64::MAX),
            reached_at,
            canonical: self.me.canonical.clone(),
            expects,
            found,
        };
        let bytes = vec![frame::preface(VERSIONS, hello.to_text().as_bytes())];
        self.orders.push(NetworkCommand::Send { connection: id, bytes, notify_drained: false });
    }

    /// The other side's range of versions has come.
    pub(super) fn greeted(&mut self, id: ConnectionId, versions: Versions) -> Result<(), Fault> {
        let Some(session) = self.sessions.get(&id) else { return Ok(()) };
        if VERSIONS.common(versions).is_some() {
            return Ok(());
        }
        if let Origin::Accepted(_) = session.origin {
            // So that the other side can say so, too.
            self.send_hello(id);
        }
        let text = format!(
            "server \"{}\" speaks versions {} to {} of the protocol between servers, the other one {} to {}: \
             run the same release on both",
            self.me.name, VERSIONS.least, VERSIONS.most, versions.least, versions.most
        );
        Err(Fault::new(Reason::Version, text))
    }

    /// The other side's hello has come.
    pub(super) fn introduced(
        &mut self,
        id: ConnectionId,
        hello: Hello,
        may_adopt: MayAdopt<'_>,
    ) -> Result<(), Fault> {
        let Some(session) = self.sessions.get(&id) else { return Ok(()) };
        let (origin, since, reached) = (session.origin.clone(), session.since, session.reached.clone());
        if let Origin::Accepted(_) = origin {
            self.send_hello(id);
        }
        if let Origin::Dialed(address) = &origin {
            self.dialer.found(address, hello.server);
            let dialed = Dialed { place: address, reached: &reached, at: since };
            let is_self = hello.server == self.me.server && hello.incarnation == self.incarnation;
            if hello.cluster.is_none() {
                self.met_newcomer(&dialed, &hello);
            } else if is_self && dialed.is_own_to(&hello) {
                // Elsewhere, another server may answer the next time.
                self.dialer.is_self(address);
            }
        }
        self.judge(&hello, &origin, may_adopt)?;
        let server = hello.server;
        if let Some(session) = self.sessions.get_mut(&id) {
            session.hello = Some(Box::new(hello));
            session.stage = Stage::Deciding;
        }
        if !self.is_chooser(server) {
            self.send_frame(id, Kind::Consent, 0, &[]);
        }
        Ok(())
    }

    fn judge(&mut self, hello: &Hello, origin: &Origin, may_adopt: MayAdopt<'_>) -> Result<(), Fault> {
        let at = origin.place();
        let (me, other) = (&self.me.name, &hello.name);
        if hello.server == self.me.server {
            if hello.incarnation == self.incarnation {
                return Err(Fault::new(Reason::Itself, "a server needs no link to itself".to_owned()));
            }
            let text = format!(
                "servers \"{me}\" and \"{other}\" at {at} have the same identity {}: one of their data directories \
                 is a copy of the other",
                hello.server
            );
            return Err(Fault::new(Reason::Replaced, text));
        }
        if self.book.is_removed(hello.server) {
            return Err(Fault::removed(format!("\"{other}\" {}", hello.server)));
        }
        if self.peers.get(&hello.server).is_some_and(|peer| peer.was_replaced(hello, self.now)) {
            let text =
                format!("server \"{other}\" {} was started again since, as another process", hello.server);
            return Err(Fault::new(Reason::Replaced, text));
        }
        match (self.me.cluster, hello.cluster) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                let text = format!(
                    "server \"{me}\" belongs to cluster {ours} and server \"{other}\" to cluster {theirs}: servers \
                     of two clusters cannot be linked, only one that has never held data joins a cluster"
                );
                Err(Fault::new(Reason::Stranger, text))
            }
            (None, None) => {
                // The same on both sides, so that each says it once.
                let (one, another) = (me.min(other), me.max(other));
                let text =
                    format!("neither server \"{one}\" nor server \"{another}\" belongs to a cluster yet");
                Err(Fault::new(Reason::NoCluster, text))
            }
            (None, Some(_)) if matches!(origin, Origin::Accepted(_)) => {
                // Whoever happens to dial must not decide where a newcomer belongs.
                let text =
                    format!("server \"{me}\" belongs to no cluster yet and joins only a server it dials");
                Err(Fault::new(Reason::NoCluster, text))
            }
            (None, Some(cluster)) if self.founding.is_under_way() => {
                let text = format!("server \"{me}\" makes a cluster of its own and cannot join {cluster}");
                Err(Fault::new(Reason::NotAdopted, text))
            }
            (None, Some(cluster)) => {
                may_adopt(cluster, &hello.info(at)).map_err(|why| {
                    let text = format!("server \"{me}\" cannot join cluster {cluster}: {why}");
                    Fault::new(Reason::NotAdopted, text)
                })?;
                self.me.cluster = Some(cluster);
                self.member_since = self.now;
                self.note(Note::Info, format!("Found cluster {cluster} through server \"{other}\" at {at}"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether this node decides which connection is the link.
    fn is_chooser(&self, other: ServerId) -> bool {
        self.me.server.0.as_bytes() < other.0.as_bytes()
    }

    /// The other side agrees; this one chooses.
    pub(super) fn consented(&mut self, id: ConnectionId) -> Result<(), Fault> {
        let out_of_turn = || Fault::damage(frame::Damage::OutOfTurn.to_string());
        let session = self.sessions.get(&id).filter(|session| session.stage == Stage::Deciding);
        let hello = session.and_then(|session| session.hello.as_ref()).ok_or_else(out_of_turn)?;
        let hello = hello.clone();
        let server = hello.server;
        if !self.is_chooser(server) {
            return Err(out_of_turn());
        }
        let timeout = self.timings.silent_after(self.timings.heartbeat_interval());
        let (until, number) = (self.now.after(timeout), self.random.next_u64());
        let peer = self.peer(server);
        // Of an earlier process this may be the last that is heard: only one that is alive answers.
        let is_same = peer.incarnation == Some(hello.incarnation);
        if peer.link.is_none() || !is_same && !peer.is_later_than(&hello) {
            self.welcome(id);
            return Ok(());
        }
        if peer.probe.is_some() {
            return Err(Fault::duplicate());
        }
        peer.probe = Some(Probe { number, newcomer: id, until });
        peer.outbox.control(Kind::Heartbeat, flag::ECHO_WANTED, number);
        self.will_send(server);
        self.tick_by(until);
        Ok(())
    }

    /// The present link has on_response: the newcomer is one too many.
    pub(super) fn echoed(&mut self, server: ServerId, number: u64) {
        let Some(peer) = self.peers.get_mut(&server) else { return };
        if let Some(probe) = peer.probe.take_if(|probe| probe.number == number) {
            self.dismiss(probe.newcomer, &Fault::duplicate());
        }
    }

    /// The present link has not on_response in time, or is over: the newcomer takes its place.
    pub(super) fn welcome(&mut self, id: ConnectionId) {
        let number = self.welcome_next;
        self.welcome_next += 1;
        self.send_frame(id, Kind::Welcome, number, &[]);
        self.open(id, number);
    }

    /// The other side has chosen this connection.
    pub(super) fn welcomed(&mut self, id: ConnectionId, number: u64) -> Result<(), Fault> {
        let session = self.sessions.get(&id).filter(|session| session.stage == Stage::Deciding);
        let hello = session.and_then(|session| session.hello.as_ref());
        let hello = hello.ok_or_else(|| Fault::damage(frame::Damage::OutOfTurn.to_string()))?;
        let (server, incarnation) = (hello.server, hello.incarnation);
        let peer = self.peer(server);
        if peer.incarnation == Some(incarnation) && number <= peer.welcome {
            return Err(Fault::duplicate());
        }
        self.open(id, number);
        Ok(())
    }

    fn open(&mut self, id: ConnectionId, number: u64) {
        let now = self.now;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(hello) = session.hello.clone() else { return };
        let (origin, server) = (session.origin.clone(), hello.server);
        session.stage = Stage::Open(server);
        // Another connection of an incarnation that ends now.
        if let Some(probe) = self.peer(server).probe.take().filter(|probe| probe.newcomer != id) {
            self.dismiss(probe.newcomer, &Fault::duplicate());
        }
        if let Some(old) = self.peer(server).link {
            let why = "another connection takes its place";
            self.dismiss(old, &Fault::new(Reason::Duplicate, why.to_owned()));
        }
        let name = self.names.get(&server).unwrap_or(&hello.name).clone();
        let peer = self.peer(server);
        peer.begins(&hello, now);
        peer.welcome = number;
        peer.name.clone_from(&name);
        peer.opens(id, now, std::time::Duration::from_millis(hello.heartbeat_ms));
        let stats = peer.stats.clone();
        if let Origin::Dialed(address) = &origin {
            self.dialer.done(address, now, &self.timings);
        }
        self.refused.remove(&server.to_string());
        self.learn_address(&hello, &origin);
        self.note(Note::Info, format!("Connected to server \"{name}\" {server}"));
        self.effects.push(Effect::Connected(Arc::new(hello.info(origin.place())), stats));
        let book = Bytes::from(self.book.to_text());
        self.peer(server).outbox.answer(Kind::Book, 0, book);
        self.will_send(server);
        self.tick_by(now);
    }

    /// A server was renamed, or the catalog that has its name was read.
    pub(super) fn named(&mut self, server: ServerId, name: String) {
        if server == self.me.server {
            self.me.name.clone_from(&name);
        } else if let Some(peer) = self.peers.get_mut(&server) {
            peer.name.clone_from(&name);
        }
        self.names.insert(server, name);
    }

    /// Enters into the book where a server says it is, and where it was found. Not of a proxy: it dials the others itself, and
    /// is somebody else each time that it starts.
    fn learn_address(&mut self, hello: &Hello, origin: &Origin) {
        if hello.is_proxy {
            return;
        }
        let mut addresses = hello.addresses.clone();
        let seen = match origin {
            Origin::Dialed(address) => Some(address.clone()),
            Origin::Accepted(from) => from.rsplit_once(':').map(|(host, _)| format!("{host}:{}", hello.port)),
        };
        addresses.extend(seen.filter(|seen| !hello.addresses.contains(seen)));
        for address in &addresses {
            self.dialer.server_at(address, hello.server, self.now);
        }
        let entry =
            BookEntry { name: hello.name.clone(), addresses, started_ms: hello.started_ms, removed: false };
        if self.book.hear(hello.server, entry) {
            self.book_changed();
        }
    }

    /// Sends a farewell and ends the connection.
    pub(super) fn dismiss(&mut self, id: ConnectionId, fault: &Fault) {
        let Some(session) = self.sessions.get(&id) else { return };
        // Who does not speak the language at all would not understand a farewell either.
        let is_deaf = fault.reason == Reason::Damage && session.hello.is_none();
        if session.stage != Stage::Dialing && !is_deaf {
            self.send_frame(id, Kind::Farewell, fault.reason as u64, fault.text.as_bytes());
        }
        if session_is_refused(self, id) && !fault.reason.is_quiet() && !self.is_expected(fault.reason) {
            self.say_refused(id, &fault.text);
        }
        self.orders.push(NetworkCommand::Close(id));
        self.over(id, &fault.text, Some(fault.reason));
    }

    /// The other side says why it ends the connection.
    pub(super) fn dismissed(&mut self, id: ConnectionId, reason: u64, text: &[u8]) {
        let text = String::from_utf8_lossy(text).into_owned();
        if Reason::of(reason) == Some(Reason::Removed)
            && self.sessions.get(&id).is_some_and(|s| s.hello.is_some())
        {
            self.effects.push(Effect::Removed);
        }
        let reason = Reason::of(reason);
        let is_quiet = reason.is_some_and(|reason| reason.is_quiet() || self.is_expected(reason));
        if session_is_refused(self, id) && !is_quiet {
            self.say_refused(id, &text);
        }
        self.orders.push(NetworkCommand::Close(id));
        self.over(id, &text, reason);
    }

    /// The network says that a connection is over.
    pub(super) fn ended(&mut self, id: ConnectionId, why: &str) {
        if let Some(session) = self.sessions.get(&id) {
            // Who dialed is told by TLS; here nobody else says a word of it.
            if session.hello.is_none() && why.starts_with(TLS_FAULT) {
                self.say_refused(id, why);
            }
            self.over(id, why, None);
        }
    }

    /// Forgets a connection that has ended, whichever way, for the reason that one side gave.
    fn over(&mut self, id: ConnectionId, why: &str, reason: Option<Reason>) {
        let Some(session) = self.sessions.remove(&id) else { return };
        let server = session.server();
        let newcomer = server.and_then(|server| {
            let peer = self.peers.get_mut(&server)?;
            peer.probe.take_if(|probe| probe.newcomer == id);
            (peer.link == Some(id)).then(|| peer.probe.take().map(|probe| probe.newcomer))
        });
        if let (Some(server), Some(newcomer)) = (server, newcomer) {
            self.unlink(server, why);
            // Whoever waited for the link to prove itself may have its place.
            if let Some(newcomer) = newcomer.filter(|_| !self.is_closed) {
                self.welcome(newcomer);
            }
        }
        if let (Origin::Dialed(address), false) = (&session.origin, session.linked().is_some()) {
            let is_linked = server.is_some_and(|s| self.peers.get(&s).is_some_and(|p| p.link.is_some()));
            if is_linked {
                self.dialer.done(address, self.now, &self.timings);
            } else {
                let random = self.random.clone();
                let was_refused = reason.is_some_and(|reason| self.is_for_long(reason));
                self.dialer.failed(address, was_refused, self.now, &self.timings, &*random);
                let is_expected =
                    reason.is_some_and(|reason| reason == Reason::Itself || self.is_expected(reason));
                if !self.is_closed && !is_expected && self.dialer.is_news(address, why) {
                    self.note(Note::Warning, format!("Cannot link to the server at {address}: {why}"));
                }
            }
        }
        self.tick_by(self.now);
    }

    fn send_frame(&mut self, id: ConnectionId, kind: Kind, number: u64, payload: &[u8]) {
        let mut out = BytesMut::new();
        frame::put(&mut out, kind, flag::WHOLE, number, payload);
        self.orders.push(NetworkCommand::Send {
            connection: id,
            bytes: vec![out.freeze()],
            notify_drained: false,
        });
    }

    /// Connections that take too long, and links that owe an echo.
    pub(super) fn expire_sessions(&mut self) {
        let now = self.now;
        let mut late = Vec::new();
        let mut next_at = None;
        for (id, session) in &self.sessions {
            let timeout = match session.stage {
                Stage::Dialing => self.timings.dial_timeout,
                Stage::Greeting | Stage::Deciding => self.timings.handshake_timeout,
                Stage::Open(_) => continue,
            };
            let until = session.since.after(timeout);
            if until <= now {
                late.push((*id, session.stage));
            } else {
                next_at = Some(next_at.map_or(until, |at: io::Nanos| at.min(until)));
            }
        }
        for (id, stage) in late {
            self.orders.push(NetworkCommand::Close(id));
            let why = match stage {
                Stage::Dialing => "it does not answer",
                _ => "it does not say who it is, or cannot agree on a link",
            };
            self.over(id, why, None);
        }
        let due = |peer: &super::peer::Peer| {
            let probe = peer.probe.as_ref()?;
            Some((probe.until, peer.link?))
        };
        let probes: Vec<_> = self.peers.values().filter_map(due).collect();
        for (until, link) in probes {
            if until <= now {
                // Ends the link, whereupon the newcomer gets its place.
                self.dismiss(link, &Fault::new(Reason::Duplicate, "it does not answer".to_owned()));
            } else {
                self.tick_by(until);
            }
        }
        if let Some(at) = next_at {
            self.tick_by(at);
        }
    }
}

/// Whether a connection is ended before it has become a link.
fn session_is_refused(machine: &Machine, id: ConnectionId) -> bool {
    machine.sessions.get(&id).is_some_and(|session| session.linked().is_none())
}
