//! All other servers, and the data that is queued for them: replication messages, requests, responses, heartbeats and
//! the address book.

use std::collections::BTreeMap;

use bytes::Bytes;
use io::{ConnectionId, Nanos};

use super::command::Call;
use super::fault::Fault;
use super::output::{Effect, Output};
use super::peer::{Choice, Peer, Probe};
use super::schedule::Schedule;
use crate::link::frame::{Kind, flag};
use crate::link::hello::Hello;
use crate::link::log_message::Message;
use crate::link::outbox::{Put, QueueLimits};
use crate::link::stats::PeerStats;
use crate::{RpcError, ServerId};

/// Every server that was ever linked.
pub(super) struct Peers {
    by_server: BTreeMap<ServerId, Peer>,
    limits: QueueLimits,
    /// Servers with queued data to send, each once.
    unsent: Vec<ServerId>,
}

impl Peers {
    pub(super) fn new(limits: QueueLimits) -> Peers {
        Peers { by_server: BTreeMap::new(), limits, unsent: Vec::new() }
    }

    pub(super) fn get(&self, server: ServerId) -> Option<&Peer> {
        self.by_server.get(&server)
    }

    pub(super) fn get_mut(&mut self, server: ServerId) -> Option<&mut Peer> {
        self.by_server.get_mut(&server)
    }

    /// The peer with the id `server`, which is added if it is new.
    pub(super) fn get_or_add(&mut self, server: ServerId) -> &mut Peer {
        let limits = self.limits;
        self.by_server.entry(server).or_insert_with(|| Peer::new(server, limits))
    }

    pub(super) fn is_linked(&self, server: ServerId) -> bool {
        self.get(server).is_some_and(|peer| peer.link.is_some())
    }

    /// Sends a request, or reports at once why it cannot be sent.
    pub(super) fn call(&mut self, call: Call, schedule: &mut Schedule, output: &mut Output) {
        let Call { to, request, timeout, on_response } = call;
        let peer = self.by_server.get_mut(&to).filter(|peer| peer.link.is_some());
        let Some(peer) = peer else {
            output.add(Effect::Response(on_response, Err(RpcError::NotConnected(to))));
            return;
        };
        let error = match peer.outbox.request(peer.requests.next_number(), request) {
            Put::Queued => {
                let deadline = schedule.now().after(timeout);
                PeerStats::add(&peer.stats.requests_out, 1);
                peer.requests.add(on_response, deadline);
                peer.will_send(&mut self.unsent);
                schedule.tick_by(deadline);
                return;
            }
            Put::Full => RpcError::NotConnected(to),
            Put::TooLong => RpcError::Refused { server: to, why: "the request is too long".to_owned() },
        };
        PeerStats::add(&peer.stats.requests_failed, 1);
        output.add(Effect::Response(on_response, Err(error)));
    }

    /// Fails the requests whose deadline has passed, and schedules the tick for the next deadline.
    pub(super) fn expire_requests(&mut self, schedule: &mut Schedule, output: &mut Output) {
        for peer in self.by_server.values_mut() {
            if peer.expire_requests(schedule.now(), output) {
                peer.will_send(&mut self.unsent);
            }
            if let Some(at) = peer.requests.next_deadline() {
                schedule.tick_by(at);
            }
        }
    }

    pub(super) fn send_log_messages(&mut self, to: ServerId, log_messages: Vec<Message>) {
        let Some(peer) = self.by_server.get_mut(&to) else { return };
        if peer.link.is_none() {
            PeerStats::add(&peer.stats.log_messages_dropped, log_messages.len());
            return;
        }
        for log_message in log_messages {
            if peer.outbox.log_message(log_message) != Put::Queued {
                PeerStats::add(&peer.stats.log_messages_dropped, 1);
            }
        }
        peer.will_send(&mut self.unsent);
    }

    /// Sends the response to a request that `to` sent on `link`.
    pub(super) fn respond(
        &mut self,
        to: ServerId,
        link: ConnectionId,
        number: u64,
        result: Result<Bytes, String>,
    ) {
        // That link may have ended; the request has then failed on the other side already.
        let Some(peer) = self.by_server.get_mut(&to).filter(|peer| peer.link == Some(link)) else { return };
        let (kind, body) = match result {
            Ok(response) => (Kind::Response, response),
            Err(why) => (Kind::Refusal, Bytes::from(why)),
        };
        peer.outbox.respond(kind, number, body);
        peer.will_send(&mut self.unsent);
    }

    /// Sends the address book with this text to `server`, whose link has just opened.
    pub(super) fn send_address_book_to(&mut self, server: ServerId, text: String) {
        let Some(peer) = self.by_server.get_mut(&server) else { return };
        peer.outbox.respond(Kind::Book, 0, Bytes::from(text));
        peer.will_send(&mut self.unsent);
    }

    /// Sends the address book with this text to all linked servers.
    pub(super) fn send_address_book(&mut self, text: &str) {
        for peer in self.by_server.values_mut().filter(|peer| peer.link.is_some()) {
            peer.outbox.respond(Kind::Book, 0, Bytes::from(text.to_owned()));
            peer.will_send(&mut self.unsent);
        }
    }

    /// Hands the queued data of all servers to the network.
    pub(super) fn send_all(&mut self, now: Nanos, output: &mut Output) {
        self.unsent.sort_unstable();
        for server in self.unsent.drain(..) {
            if let Some(peer) = self.by_server.get_mut(&server) {
                peer.is_unsent = false;
                peer.send(now, output);
            }
        }
    }

    /// The network has sent everything that it was given for `link`, the link to `server`.
    pub(super) fn drained(&mut self, server: ServerId, link: ConnectionId) {
        let Some(peer) = self.by_server.get_mut(&server).filter(|peer| peer.link == Some(link)) else {
            return;
        };
        peer.drained();
        peer.will_send(&mut self.unsent);
    }

    /// Detects silent servers. Returns the links on which nothing was received for too long.
    pub(super) fn check_silence(
        &mut self,
        schedule: &Schedule,
        output: &mut Output,
    ) -> Vec<(ConnectionId, Fault)> {
        let timeout = schedule.timings().heartbeat_timeout;
        let mut dead = Vec::new();
        for peer in self.by_server.values_mut() {
            let Some(link) = peer.link else { continue };
            if peer.quiet_time(schedule.now()) >= timeout {
                let (name, seconds) = (&peer.name, timeout.as_secs_f64());
                let text = format!("nothing was received from server \"{name}\" for {seconds} seconds");
                dead.push((link, Fault::silent(text)));
            } else {
                peer.check_silence(schedule, output);
            }
        }
        dead
    }

    /// Sends a heartbeat to each linked server to which nothing else was sent for a while. It reports when nothing is
    /// received from the server.
    pub(super) fn send_heartbeats(&mut self, schedule: &Schedule) {
        for peer in self.by_server.values_mut().filter(|peer| peer.link.is_some()) {
            if peer.add_heartbeat(schedule) {
                peer.will_send(&mut self.unsent);
            }
        }
    }

    /// Handles a heartbeat of `server`. If it is the echo that a connection waits for, returns that connection: the
    /// present link stays.
    pub(super) fn heartbeat_received(
        &mut self,
        server: ServerId,
        flags: u8,
        number: u64,
    ) -> Option<ConnectionId> {
        let peer = self.by_server.get_mut(&server)?;
        if flags & flag::ECHO != 0 {
            return peer.echo_received(number);
        }
        if peer.heartbeat_received(flags, number) {
            peer.will_send(&mut self.unsent);
        }
        None
    }

    /// Decides about a connection whose other side, which has sent `hello`, consents. `probe` is for the case that the
    /// present link has to answer an echo.
    pub(super) fn choose(&mut self, hello: &Hello, probe: Probe) -> Result<Choice, Fault> {
        let Some(peer) = self.by_server.get_mut(&hello.server) else { return Ok(Choice::Accept) };
        let choice = peer.choose(hello, probe)?;
        if choice == Choice::Probe {
            peer.will_send(&mut self.unsent);
        }
        Ok(choice)
    }

    /// The links that have not answered an echo in time. Schedules the tick for the next ones.
    pub(super) fn unanswered(&self, schedule: &mut Schedule) -> Vec<ConnectionId> {
        let waits = |peer: &Peer| Some((peer.echo_until()?, peer.link?));
        let mut unanswered = Vec::new();
        for (until, link) in self.by_server.values().filter_map(waits) {
            if until <= schedule.now() {
                unanswered.push(link);
            } else {
                schedule.tick_by(until);
            }
        }
        unanswered
    }
}
