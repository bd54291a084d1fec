//! How two servers agree on one link: hello, consent, welcome, farewell (docs/formats/link.md).

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use io::{ConnectionId, Endpoints, NetworkCommand, TLS_FAULT};

use super::bootstrap::DialedAddress;
use super::fault::{Fault, Reason};
use super::peer::Probe;
use super::session::{Origin, SessionStage};
use super::{Effect, LogLevel, Machine, MayAdopt};
use crate::ServerId;
use crate::link::address_book::AddressBookEntry;
use crate::link::frame::{self, Kind, VERSIONS, Versions, flag};
use crate::link::hello::Hello;

const PROGRAM: &str = concat!("rekindle ", env!("CARGO_PKG_VERSION"));

impl Machine {
    pub(super) fn connected(&mut self, id: ConnectionId, ends: Endpoints) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.reached_address = ends.remote;
        session.stage = SessionStage::AwaitingHello;
        session.since = self.now;
        self.tick_by(self.now.after(self.timings.handshake_timeout));
        self.send_hello(id);
    }

    pub(super) fn send_hello(&mut self, id: ConnectionId) {
        let interval_ms = self.timings.heartbeat_interval().as_millis();
        let expects: Option<Vec<ServerId>> =
            self.promise_expected().map(|servers| servers.into_iter().collect());
        let accepted = self.sessions.get(&id).filter(|session| matches!(session.origin, Origin::Accepted(_)));
        let reached_at = accepted.map(|session| session.reached_address.clone());
        let found = expects.as_ref().map(|_| self.found_servers());
        let hello = Hello {
            cluster: self.local.cluster,
            server: self.local.server,
            incarnation: self.incarnation,
            started_ms: self.started_ms,
            name: self.local.name.clone(),
            tags: self.local.tags.clone(),
            addresses: self.local.addresses.clone(),
            port: self.local.port,
            is_proxy: self.local.is_proxy,
            program: PROGRAM.to_owned(),
            heartbeat_ms: u64::try_from(interval_ms).unwrap_or(u64::MAX),
            reached_at,
            canonical: self.local.canonical.clone(),
            expects,
            found,
        };
        let bytes = vec![frame::preface(VERSIONS, hello.to_text().as_bytes())];
        self.network_commands.push(NetworkCommand::Send { connection: id, bytes, notify_drained: false });
    }

    /// Checks the range of versions in the other side's preface.
    pub(super) fn versions_received(&mut self, id: ConnectionId, versions: Versions) -> Result<(), Fault> {
        let Some(session) = self.sessions.get(&id) else { return Ok(()) };
        if VERSIONS.common(versions).is_some() {
            return Ok(());
        }
        if let Origin::Accepted(_) = session.origin {
            // So that the other side can log the mismatch, too.
            self.send_hello(id);
        }
        let text = format!(
            "server \"{}\" supports versions {} to {} of the protocol between servers, the other one {} to {}: \
             run the same release on both",
            self.local.name, VERSIONS.lowest, VERSIONS.highest, versions.lowest, versions.highest
        );
        Err(Fault::new(Reason::Version, text))
    }

    /// Handles the other side's hello.
    pub(super) fn hello_received(
        &mut self,
        id: ConnectionId,
        hello: Hello,
        may_adopt: MayAdopt<'_>,
    ) -> Result<(), Fault> {
        let Some(session) = self.sessions.get(&id) else { return Ok(()) };
        let (origin, since, reached_address) =
            (session.origin.clone(), session.since, session.reached_address.clone());
        if let Origin::Accepted(_) = origin {
            self.send_hello(id);
        }
        if let Origin::Dialed(address) = &origin {
            self.dialer.found(address, hello.server);
            let dialed = DialedAddress { address, reached_address: &reached_address, at: since };
            let is_self = hello.server == self.local.server && hello.incarnation == self.incarnation;
            if hello.cluster.is_none() {
                self.record_candidate(&dialed, &hello);
            } else if is_self && dialed.is_own_address_of(&hello) {
                // Otherwise the address is not certain to be this server: another server may answer there the next
                // time.
                self.dialer.add_own(address);
            }
        }
        self.check_hello(&hello, &origin, may_adopt)?;
        let server = hello.server;
        if let Some(session) = self.sessions.get_mut(&id) {
            session.hello = Some(Box::new(hello));
            session.stage = SessionStage::Agreeing;
        }
        if !self.is_chooser(server) {
            self.send_frame(id, Kind::Consent, 0, &[]);
        }
        Ok(())
    }

    fn check_hello(&mut self, hello: &Hello, origin: &Origin, may_adopt: MayAdopt<'_>) -> Result<(), Fault> {
        let at = origin.address();
        let (own, other) = (&self.local.name, &hello.name);
        if hello.server == self.local.server {
            if hello.incarnation == self.incarnation {
                return Err(Fault::new(Reason::Itself, "a server needs no link to itself".to_owned()));
            }
            let text = format!(
                "servers \"{own}\" and \"{other}\" at {at} have the same identity {}: one of their data directories \
                 is a copy of the other",
                hello.server
            );
            return Err(Fault::new(Reason::Replaced, text));
        }
        if self.address_book.is_removed(hello.server) {
            return Err(Fault::removed(format!("\"{other}\" {}", hello.server)));
        }
        if self.peers.get(&hello.server).is_some_and(|peer| peer.was_replaced(hello, self.now)) {
            let text =
                format!("server \"{other}\" {} was started again since, as another process", hello.server);
            return Err(Fault::new(Reason::Replaced, text));
        }
        match (self.local.cluster, hello.cluster) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                let text = format!(
                    "server \"{own}\" belongs to cluster {ours} and server \"{other}\" to cluster {theirs}: servers \
                     of two clusters cannot be linked, only one that has never held data joins a cluster"
                );
                Err(Fault::new(Reason::Stranger, text))
            }
            (None, None) => {
                // The same text on both sides, so that each logs it once.
                let (one, another) = (own.min(other), own.max(other));
                let text =
                    format!("neither server \"{one}\" nor server \"{another}\" belongs to a cluster yet");
                Err(Fault::new(Reason::NoCluster, text))
            }
            (None, Some(_)) if matches!(origin, Origin::Accepted(_)) => {
                // A server joins only clusters that it has dialed: otherwise any server that dials it could decide
                // which cluster it joins.
                let text =
                    format!("server \"{own}\" belongs to no cluster yet and joins only a server it dials");
                Err(Fault::new(Reason::NoCluster, text))
            }
            (None, Some(cluster)) if self.bootstrap.is_under_way() => {
                let text = format!("server \"{own}\" is making another cluster and cannot join {cluster}");
                Err(Fault::new(Reason::NotAdopted, text))
            }
            (None, Some(cluster)) => {
                may_adopt(cluster, &hello.info(at)).map_err(|why| {
                    let text = format!("server \"{own}\" cannot join cluster {cluster}: {why}");
                    Fault::new(Reason::NotAdopted, text)
                })?;
                self.local.cluster = Some(cluster);
                self.member_since = self.now;
                self.log(
                    LogLevel::Info,
                    format!("Found cluster {cluster} through server \"{other}\" at {at}"),
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether this node is the chooser, which decides which connection is the link.
    fn is_chooser(&self, other: ServerId) -> bool {
        self.local.server.0.as_bytes() < other.0.as_bytes()
    }

    /// The other side consents; this node is the chooser.
    pub(super) fn consent_received(&mut self, id: ConnectionId) -> Result<(), Fault> {
        let out_of_turn = || Fault::damage(frame::Damage::OutOfTurn.to_string());
        let session = self.sessions.get(&id).filter(|session| session.stage == SessionStage::Agreeing);
        let hello = session.and_then(|session| session.hello.as_ref()).ok_or_else(out_of_turn)?;
        let hello = hello.clone();
        let server = hello.server;
        if !self.is_chooser(server) {
            return Err(out_of_turn());
        }
        let timeout = self.timings.silent_after(self.timings.heartbeat_interval());
        let (until, number) = (self.now.after(timeout), self.random.next_u64());
        let peer = self.peer(server);
        // A connection of an older incarnation may be the last one of a process that has ended. So it waits for the
        // echo of the present link, like one of the same incarnation. A later process is welcomed at once.
        let is_same = peer.incarnation == Some(hello.incarnation);
        if peer.link.is_none() || !is_same && !peer.is_later_than(&hello) {
            self.welcome(id);
            return Ok(());
        }
        if peer.probe.is_some() {
            return Err(Fault::duplicate());
        }
        peer.probe = Some(Probe { number, waiting: id, until });
        peer.outbox.control(Kind::Heartbeat, flag::ECHO_WANTED, number);
        self.will_send(server);
        self.tick_by(until);
        Ok(())
    }

    /// The present link has answered: closes the connection that waits to replace it.
    pub(super) fn echo_received(&mut self, server: ServerId, number: u64) {
        let Some(peer) = self.peers.get_mut(&server) else { return };
        if let Some(probe) = peer.probe.take_if(|probe| probe.number == number) {
            self.close_session(probe.waiting, &Fault::duplicate());
        }
    }

    /// Accepts a connection as the link. There is no other link, or it has ended, or it has not answered in time.
    pub(super) fn welcome(&mut self, id: ConnectionId) {
        let number = self.welcome_next;
        self.welcome_next += 1;
        self.send_frame(id, Kind::Welcome, number, &[]);
        self.open(id, number);
    }

    /// The chooser has accepted this connection.
    pub(super) fn welcome_received(&mut self, id: ConnectionId, number: u64) -> Result<(), Fault> {
        let session = self.sessions.get(&id).filter(|session| session.stage == SessionStage::Agreeing);
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
        session.stage = SessionStage::Open(server);
        // Closes another connection that waits, of an incarnation that has ended.
        if let Some(probe) = self.peer(server).probe.take().filter(|probe| probe.waiting != id) {
            self.close_session(probe.waiting, &Fault::duplicate());
        }
        if let Some(old) = self.peer(server).link {
            let why = "another connection takes its place";
            self.close_session(old, &Fault::new(Reason::Duplicate, why.to_owned()));
        }
        let name = self.names.get(&server).unwrap_or(&hello.name).clone();
        let peer = self.peer(server);
        peer.set_incarnation(&hello, now);
        peer.welcome = number;
        peer.name.clone_from(&name);
        peer.link_opened(id, now, std::time::Duration::from_millis(hello.heartbeat_ms));
        let stats = peer.stats.clone();
        if let Origin::Dialed(address) = &origin {
            self.dialer.done(address, now, &self.timings);
        }
        self.refused.remove(&server.to_string());
        self.learn_address(&hello, &origin);
        self.log(LogLevel::Info, format!("Connected to server \"{name}\" {server}"));
        self.effects.push(Effect::Connected(Arc::new(hello.info(origin.address())), stats));
        let address_book = Bytes::from(self.address_book.to_text());
        self.peer(server).outbox.respond(Kind::Book, 0, address_book);
        self.will_send(server);
        self.tick_by(now);
    }

    /// Sets a server's name, after it was renamed or the catalog was read.
    pub(super) fn set_name(&mut self, server: ServerId, name: String) {
        if server == self.local.server {
            self.local.name.clone_from(&name);
        } else if let Some(peer) = self.peers.get_mut(&server) {
            peer.name.clone_from(&name);
        }
        self.names.insert(server, name);
    }

    /// Enters a server's own addresses, and the one where it was reached, into the address book. Leaves out proxies:
    /// a proxy dials all servers itself, and has a new identity after each start.
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
        let entry = AddressBookEntry {
            name: hello.name.clone(),
            addresses,
            started_ms: hello.started_ms,
            removed: false,
        };
        if self.address_book.update_own_entry(hello.server, entry) {
            self.address_book_changed();
        }
    }

    /// Sends a farewell and ends the connection.
    pub(super) fn close_session(&mut self, id: ConnectionId, fault: &Fault) {
        let Some(session) = self.sessions.get(&id) else { return };
        // A program with another protocol would not understand a farewell.
        let is_other_protocol = fault.reason == Reason::Damage && session.hello.is_none();
        if session.stage != SessionStage::Dialing && !is_other_protocol {
            self.send_frame(id, Kind::Farewell, fault.reason as u64, fault.text.as_bytes());
        }
        if session_is_refused(self, id) && !fault.reason.is_quiet() && !self.is_expected(fault.reason) {
            self.log_refused(id, &fault.text);
        }
        self.network_commands.push(NetworkCommand::Close(id));
        self.session_ended(id, &fault.text, Some(fault.reason));
    }

    /// Handles the farewell of the other side.
    pub(super) fn farewell_received(&mut self, id: ConnectionId, reason: u64, text: &[u8]) {
        let text = String::from_utf8_lossy(text).into_owned();
        if Reason::of(reason) == Some(Reason::Removed)
            && self.sessions.get(&id).is_some_and(|s| s.hello.is_some())
        {
            self.effects.push(Effect::Removed);
        }
        let reason = Reason::of(reason);
        let is_quiet = reason.is_some_and(|reason| reason.is_quiet() || self.is_expected(reason));
        if session_is_refused(self, id) && !is_quiet {
            self.log_refused(id, &text);
        }
        self.network_commands.push(NetworkCommand::Close(id));
        self.session_ended(id, &text, reason);
    }

    /// The network reports that a connection has ended.
    pub(super) fn connection_closed(&mut self, id: ConnectionId, why: &str) {
        if let Some(session) = self.sessions.get(&id) {
            // The dialing side logs TLS errors with the failed dial; this is the only log of the accepting side.
            if session.hello.is_none() && why.starts_with(TLS_FAULT) {
                self.log_refused(id, why);
            }
            self.session_ended(id, why, None);
        }
    }

    /// Removes a connection that has ended. `reason` is the one in the farewell, of either side.
    fn session_ended(&mut self, id: ConnectionId, why: &str, reason: Option<Reason>) {
        let Some(session) = self.sessions.remove(&id) else { return };
        let server = session.server();
        let waiting = server.and_then(|server| {
            let peer = self.peers.get_mut(&server)?;
            peer.probe.take_if(|probe| probe.waiting == id);
            (peer.link == Some(id)).then(|| peer.probe.take().map(|probe| probe.waiting))
        });
        if let (Some(server), Some(waiting)) = (server, waiting) {
            self.unlink(server, why);
            // A connection that waited for the echo of the link replaces it.
            if let Some(waiting) = waiting.filter(|_| !self.is_closed) {
                self.welcome(waiting);
            }
        }
        if let (Origin::Dialed(address), false) = (&session.origin, session.linked().is_some()) {
            let is_linked = server.is_some_and(|s| self.peers.get(&s).is_some_and(|p| p.link.is_some()));
            if is_linked {
                self.dialer.done(address, self.now, &self.timings);
            } else {
                let random = self.random.clone();
                let was_refused = reason.is_some_and(|reason| self.is_lasting(reason));
                self.dialer.failed(address, was_refused, self.now, &self.timings, &*random);
                let is_expected =
                    reason.is_some_and(|reason| reason == Reason::Itself || self.is_expected(reason));
                if !self.is_closed && !is_expected && self.dialer.should_log(address, why) {
                    self.log(LogLevel::Warning, format!("Cannot link to the server at {address}: {why}"));
                }
            }
        }
        self.tick_by(self.now);
    }

    fn send_frame(&mut self, id: ConnectionId, kind: Kind, number: u64, payload: &[u8]) {
        let mut out = BytesMut::new();
        frame::put(&mut out, kind, flag::WHOLE, number, payload);
        self.network_commands.push(NetworkCommand::Send {
            connection: id,
            bytes: vec![out.freeze()],
            notify_drained: false,
        });
    }

    /// Closes connections that take too long, and links that have not answered an echo in time.
    pub(super) fn expire_sessions(&mut self) {
        let now = self.now;
        let mut expired = Vec::new();
        let mut next_at = None;
        for (id, session) in &self.sessions {
            let timeout = match session.stage {
                SessionStage::Dialing => self.timings.dial_timeout,
                SessionStage::AwaitingHello | SessionStage::Agreeing => self.timings.handshake_timeout,
                SessionStage::Open(_) => continue,
            };
            let until = session.since.after(timeout);
            if until <= now {
                expired.push((*id, session.stage));
            } else {
                next_at = Some(next_at.map_or(until, |at: io::Nanos| at.min(until)));
            }
        }
        for (id, stage) in expired {
            self.network_commands.push(NetworkCommand::Close(id));
            let why = match stage {
                SessionStage::Dialing => "it does not answer",
                _ => "it sent no hello, or did not agree on a link in time",
            };
            self.session_ended(id, why, None);
        }
        let due = |peer: &super::peer::Peer| {
            let probe = peer.probe.as_ref()?;
            Some((probe.until, peer.link?))
        };
        let probes: Vec<_> = self.peers.values().filter_map(due).collect();
        for (until, link) in probes {
            if until <= now {
                // When the link ends, the waiting connection replaces it.
                self.close_session(link, &Fault::new(Reason::Duplicate, "it does not answer".to_owned()));
            } else {
                self.tick_by(until);
            }
        }
        if let Some(at) = next_at {
            self.tick_by(at);
        }
    }
}

/// Whether a connection has not become a link yet: ending it refuses the other side.
fn session_is_refused(machine: &Machine, id: ConnectionId) -> bool {
    machine.sessions.get(&id).is_some_and(|session| session.linked().is_none())
}
