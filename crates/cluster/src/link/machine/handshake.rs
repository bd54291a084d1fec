//! How two servers agree on one link, and how a link ends: hello, consent, welcome, farewell (docs/formats/link.md).
//!
//! The parts decide, and the methods here carry out the decisions. A connection becomes the link in [`Machine::open`] and
//! ends in [`Machine::remove_session`]. The latter returns the connection that waited to replace the link, if there was
//! one, and its callers welcome that connection.

use std::sync::Arc;

use io::{ConnectionId, Endpoints, TLS_FAULT};

use super::Machine;
use super::admission::{self, MayAdopt};
use super::bootstrap::DialedAddress;
use super::fault::{Fault, Reason};
use super::output::{Effect, LogLevel};
use super::peer::{Choice, Probe};
use super::refusals;
use super::session::{Origin, Session, SessionStage};
use crate::ServerId;
use crate::link::dialer::jittered;
use crate::link::frame::{self, Damage, Kind, VERSIONS, Versions};
use crate::link::hello::Hello;

impl Machine {
    /// A dialed connection is established.
    pub(super) fn connected(&mut self, id: ConnectionId, ends: Endpoints) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.reached_address = ends.remote;
        session.stage = SessionStage::AwaitingHello;
        session.since = self.schedule.now();
        self.schedule.tick_after(self.schedule.timings().handshake_timeout);
        self.send_hello(id);
    }

    pub(super) fn send_hello(&mut self, id: ConnectionId) {
        let interval_ms = self.schedule.timings().heartbeat_interval().as_millis();
        let mut hello = self.identity.hello(u64::try_from(interval_ms).unwrap_or(u64::MAX));
        if let Some(announced) = self.bootstrap.announce(&self.identity, self.schedule.now()) {
            hello.expects = Some(announced.expects);
            hello.found = Some(announced.found);
        }
        let accepted = self.sessions.get(id).filter(|session| matches!(session.origin, Origin::Accepted(_)));
        hello.reached_at = accepted.map(|session| session.reached_address.clone());
        let bytes = vec![frame::preface(VERSIONS, hello.to_text().as_bytes())];
        self.output.send(id, bytes, false);
    }

    /// Checks the range of versions in the other side's preface.
    pub(super) fn versions_received(&mut self, id: ConnectionId, versions: Versions) -> Result<(), Fault> {
        let Some(session) = self.sessions.get(id) else { return Ok(()) };
        let checked = admission::check_versions(versions, self.identity.name());
        if checked.is_err() && matches!(session.origin, Origin::Accepted(_)) {
            // So that the other side can log the mismatch, too.
            self.send_hello(id);
        }
        checked
    }

    /// Handles the other side's hello.
    pub(super) fn hello_received(
        &mut self,
        id: ConnectionId,
        hello: Hello,
        may_adopt: MayAdopt<'_>,
    ) -> Result<(), Fault> {
        let Some(session) = self.sessions.get(id) else { return Ok(()) };
        let origin = session.origin.clone();
        match &origin {
            Origin::Accepted(_) => self.send_hello(id),
            Origin::Dialed(address) => {
                let reached_address = &session.reached_address;
                let dialed = DialedAddress { address, reached_address, at: session.since };
                self.dialer.found(address, hello.server);
                if hello.cluster.is_none() {
                    self.bootstrap.record_candidate(&dialed, &hello, self.schedule.now());
                } else if self.identity.is_sender_of(&hello) && dialed.is_own_address_of(&hello) {
                    // Otherwise the address is not certain to be this server: another server may answer there the
                    // next time.
                    self.dialer.add_own(address);
                }
            }
        }
        self.admit(&hello, &origin, may_adopt)?;
        let server = hello.server;
        if let Some(session) = self.sessions.get_mut(id) {
            session.hello = Some(Box::new(hello));
            session.stage = SessionStage::Agreeing;
        }
        if !self.identity.is_chooser(server) {
            self.output.send_frame(id, Kind::Consent, 0, &[]);
        }
        Ok(())
    }

    /// Checks that the server that has sent `hello` may be linked, and joins its cluster if this one belongs to none.
    fn admit(&mut self, hello: &Hello, origin: &Origin, may_adopt: MayAdopt<'_>) -> Result<(), Fault> {
        let now = self.schedule.now();
        admission::check_server(hello, origin, &self.identity)?;
        admission::check_process(hello, &self.known, self.peers.get(hello.server), now)?;
        let joined = admission::check_cluster(hello, origin, &self.identity, &self.bootstrap, may_adopt)?;
        if let Some(cluster) = joined {
            self.identity.set_cluster(cluster, now);
            let (name, at) = (&hello.name, origin.address());
            let text = format!("Found cluster {cluster} through server \"{name}\" at {at}");
            self.output.log(LogLevel::Info, text);
        }
        Ok(())
    }

    /// The other side consents; this node is the chooser.
    pub(super) fn consent_received(&mut self, id: ConnectionId) -> Result<(), Fault> {
        let hello = self.sessions.agreeing(id)?;
        if !self.identity.is_chooser(hello.server) {
            return Err(Damage::OutOfTurn.into());
        }
        let timings = self.schedule.timings();
        let until = self.schedule.now().after(timings.silent_after(timings.heartbeat_interval()));
        let probe = Probe { number: self.random.next_u64(), waiting: id, until };
        match self.peers.choose(hello, probe)? {
            Choice::Accept => self.welcome(id),
            Choice::Probe => self.schedule.tick_by(until),
        }
        Ok(())
    }

    /// The chooser has accepted this connection.
    pub(super) fn welcome_received(&mut self, id: ConnectionId, number: u64) -> Result<(), Fault> {
        let hello = self.sessions.agreeing(id)?;
        if self.peers.get(hello.server).is_some_and(|peer| peer.has_seen(hello, number)) {
            return Err(Fault::duplicate());
        }
        self.open(id, number);
        Ok(())
    }

    /// Handles the farewell of the other side.
    pub(super) fn farewell_received(&mut self, id: ConnectionId, reason: u64, text: &[u8]) {
        let Some(session) = self.sessions.get(id) else { return };
        let (reason, text) = (Reason::of(reason), String::from_utf8_lossy(text));
        if reason == Some(Reason::Removed) && session.hello.is_some() {
            self.output.add(Effect::Removed);
        }
        let is_quiet = reason.is_some_and(|reason| reason.is_quiet() || self.is_expected(reason));
        if session.linked().is_none() && !is_quiet {
            self.refusals.log(session, &text, &mut self.output);
        }
        self.output.close(id);
        self.end_session(id, &text, reason);
    }

    /// The network reports that a connection has ended.
    pub(super) fn connection_closed(&mut self, id: ConnectionId, why: &str) {
        let Some(session) = self.sessions.get(id) else { return };
        // The dialing side logs TLS errors with the failed dial; this is the only log of the accepting side.
        if session.hello.is_none() && why.starts_with(TLS_FAULT) {
            self.refusals.log(session, why, &mut self.output);
        }
        self.end_session(id, why, None);
    }

    /// Closes connections that take too long, and links that have not answered an echo in time.
    pub(super) fn expire_sessions(&mut self) {
        for (id, why) in self.sessions.expired(&mut self.schedule) {
            self.output.close(id);
            self.end_session(id, why, None);
        }
        for link in self.peers.unanswered(&mut self.schedule) {
            // When the link ends, the waiting connection replaces it.
            self.close_session(link, &Fault::new(Reason::Duplicate, "it does not answer".to_owned()));
        }
    }

    /// Closes the connections to servers that were removed permanently, and stops dialing them.
    pub(super) fn close_removed(&mut self) {
        // Links are closed last: a connection that waits to replace a link would become the link.
        for session in self.sessions.to_removed_servers(&self.known) {
            if session.is_link
                && let Some(peer) = self.peers.get_mut(session.server)
            {
                // Send the address book with the removal before the farewell.
                peer.send(self.schedule.now(), &mut self.output);
            }
            self.close_session(session.id, &Fault::removed(self.known.display(session.server)));
        }
        for server in self.known.removed() {
            self.dialer.forget(server);
        }
    }

    /// Sends a farewell and ends the connection.
    pub(super) fn close_session(&mut self, id: ConnectionId, fault: &Fault) {
        if let Some(waiting) = self.remove_with_farewell(id, fault) {
            self.welcome(waiting);
        }
    }

    /// Ends a connection that is closed already.
    fn end_session(&mut self, id: ConnectionId, why: &str, reason: Option<Reason>) {
        if let Some(waiting) = self.remove_session(id, why, reason) {
            self.welcome(waiting);
        }
    }

    /// Accepts a connection as the link. There is no other link, or it has ended, or it has not answered in time.
    fn welcome(&mut self, id: ConnectionId) {
        let number = self.welcome_next;
        self.welcome_next += 1;
        self.output.send_frame(id, Kind::Welcome, number, &[]);
        self.open(id, number);
    }

    /// The connection is the link from now on, instead of any other one. `number` is that of the welcome.
    fn open(&mut self, id: ConnectionId, number: u64) {
        let now = self.schedule.now();
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Some(hello) = session.hello.clone() else { return };
        let (origin, server) = (session.origin.clone(), hello.server);
        session.stage = SessionStage::Open(server);
        self.close_others(id, server);
        let name = self.known.name_of(&hello).to_owned();
        let peer = self.peers.get_or_add(server);
        peer.name.clone_from(&name);
        peer.link_opened(id, number, &hello, now);
        let stats = peer.stats.clone();
        if let Origin::Dialed(address) = &origin {
            self.dialer.done(address, now, self.schedule.timings());
        }
        self.refusals.forget(server);
        if self.known.learn(&hello, &origin, &mut self.dialer, now) {
            self.known.publish(&mut self.peers, &mut self.output);
        }
        self.output.log(LogLevel::Info, format!("Connected to server \"{name}\" {server}"));
        self.output.add(Effect::Connected(Arc::new(hello.info(origin.address())), stats));
        self.peers.send_address_book_to(server, self.known.text());
        self.schedule.tick_now();
    }

    /// Closes the other connections to `server`: one that waits, of an incarnation that has ended, and the link.
    fn close_others(&mut self, id: ConnectionId, server: ServerId) {
        let Some(peer) = self.peers.get_mut(server) else { return };
        let waiting = peer.take_waiting().filter(|waiting| *waiting != id);
        let replaced = Fault::new(Reason::Duplicate, "another connection takes its place".to_owned());
        for (other, fault) in [(waiting, Fault::duplicate()), (peer.link, replaced)] {
            let waiting = other.and_then(|other| self.remove_with_farewell(other, &fault));
            debug_assert!(waiting.is_none(), "no connection waits for an echo of the link any more");
        }
    }

    /// Closes and removes the connection after a farewell. Returns the connection that is to be welcomed in its place.
    #[must_use]
    fn remove_with_farewell(&mut self, id: ConnectionId, fault: &Fault) -> Option<ConnectionId> {
        let session = self.sessions.get(id)?;
        // A program with another protocol would not understand a farewell.
        let is_other_protocol = fault.reason == Reason::Damage && session.hello.is_none();
        if session.stage != SessionStage::Dialing && !is_other_protocol {
            self.output.send_frame(id, Kind::Farewell, fault.reason as u64, fault.text.as_bytes());
        }
        if session.linked().is_none() && !fault.reason.is_quiet() && !self.is_expected(fault.reason) {
            self.refusals.log(session, &fault.text, &mut self.output);
        }
        self.output.close(id);
        self.remove_session(id, &fault.text, Some(fault.reason))
    }

    /// Removes a connection that has ended. `reason` is the one in the farewell, of either side. Returns the connection
    /// that has waited for an echo of this one, if this was a link: it is to be welcomed.
    #[must_use]
    fn remove_session(
        &mut self,
        id: ConnectionId,
        why: &str,
        reason: Option<Reason>,
    ) -> Option<ConnectionId> {
        let session = self.sessions.remove(id)?;
        self.schedule.tick_now();
        let peer = session.server().and_then(|server| self.peers.get_mut(server));
        let mut replacement = None;
        if let Some(peer) = peer {
            peer.stop_waiting(id);
            if peer.link == Some(id) {
                replacement = peer.take_waiting();
                peer.link_ended(why, &mut self.output);
                let interval = jittered(self.schedule.timings().redial_interval_min, &*self.random);
                self.dialer.disconnected(peer.server, self.schedule.now(), interval);
            }
        }
        if session.linked().is_none() {
            self.dial_ended(&session, why, reason);
        }
        replacement.filter(|_| !self.is_closed)
    }

    /// A connection has ended that was not a link. If this node has dialed it, the address is dialed again later.
    fn dial_ended(&mut self, session: &Session, why: &str, reason: Option<Reason>) {
        let Origin::Dialed(address) = &session.origin else { return };
        let (now, timings) = (self.schedule.now(), self.schedule.timings());
        if session.server().is_some_and(|server| self.peers.is_linked(server)) {
            return self.dialer.done(address, now, timings);
        }
        let was_refused = reason.is_some_and(|reason| refusals::is_lasting(reason, &self.identity));
        self.dialer.failed(address, was_refused, now, timings, &*self.random);
        let is_expected = reason.is_some_and(|reason| reason == Reason::Itself || self.is_expected(reason));
        if !self.is_closed && !is_expected && self.dialer.should_log(address, why) {
            let text = format!("Cannot link to the server at {address}: {why}");
            self.output.log(LogLevel::Warning, text);
        }
    }

    fn is_expected(&self, reason: Reason) -> bool {
        refusals::is_expected(reason, &self.identity, &self.bootstrap, self.schedule.now())
    }
}
