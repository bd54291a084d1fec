//! Sending on open links: replication messages, requests, responses and heartbeats; and the end of a link.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use io::{ConnectionId, Nanos, NetworkCommand};

use super::fault::Fault;
use super::{Effect, LogLevel, Machine};
use crate::link::dialer::jittered;
use crate::link::frame::{Kind, flag};
use crate::link::log_message::Message;
use crate::link::outbox::Put;
use crate::link::stats::PeerStats;
use crate::{OnResponse, RpcError, ServerId};

/// How many bytes of one link are handed to the network at a time. The rest stays in the outbox, where short messages
/// can still overtake long ones.
const IN_FLIGHT_BYTES_MAX: usize = 256 << 10;

impl Machine {
    /// Sends a request, or reports at once why it cannot be sent.
    pub(super) fn call(&mut self, to: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        let deadline = self.now.after(timeout);
        let peer = self.peers.get_mut(&to).filter(|peer| peer.link.is_some());
        let Some(peer) = peer else {
            self.effects.push(Effect::Response(on_response, Err(RpcError::NotConnected(to))));
            return;
        };
        let error = match peer.outbox.request(peer.requests.next_number(), request) {
            Put::Queued => {
                PeerStats::add(&peer.stats.requests_out, 1);
                peer.requests.add(on_response, deadline);
                peer.will_send(to, &mut self.unsent);
                self.tick_by(deadline);
                return;
            }
            Put::Full => RpcError::NotConnected(to),
            Put::TooLong => RpcError::Refused { server: to, why: "the request is too long".to_owned() },
        };
        PeerStats::add(&peer.stats.requests_failed, 1);
        self.effects.push(Effect::Response(on_response, Err(error)));
    }

    pub(super) fn expire_requests(&mut self) {
        let now = self.now;
        let mut next_at: Option<Nanos> = None;
        for (server, peer) in &mut self.peers {
            let expired = peer.requests.expired(now);
            if !expired.is_empty() {
                let withdrawn = peer.outbox.withdraw(&expired);
                peer.will_send(*server, &mut self.unsent);
                for number in expired {
                    let error = match withdrawn.contains(&number) {
                        true => RpcError::NotConnected(*server),
                        false => RpcError::NoResponse(*server),
                    };
                    peer.settle(number, Err(error), &mut self.effects);
                }
            }
            next_at = [next_at, peer.requests.next_deadline()].into_iter().flatten().min();
        }
        if let Some(at) = next_at {
            self.tick_by(at);
        }
    }

    pub(super) fn send_log_messages(&mut self, to: ServerId, log_messages: Vec<Message>) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        if peer.link.is_none() {
            PeerStats::add(&peer.stats.log_messages_dropped, log_messages.len());
            return;
        }
        for log_message in log_messages {
            if peer.outbox.log_message(log_message) != Put::Queued {
                PeerStats::add(&peer.stats.log_messages_dropped, 1);
            }
        }
        peer.will_send(to, &mut self.unsent);
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
        let Some(peer) = self.peers.get_mut(&to).filter(|peer| peer.link == Some(link)) else { return };
        let (kind, body) = match result {
            Ok(response) => (Kind::Response, response),
            Err(why) => (Kind::Refusal, Bytes::from(why)),
        };
        peer.outbox.respond(kind, number, body);
        peer.will_send(to, &mut self.unsent);
    }

    /// Hands data that is queued for `server` to the network, up to [`IN_FLIGHT_BYTES_MAX`].
    pub(super) fn send(&mut self, server: ServerId) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&server) else { return };
        let Some(connection) = peer.link else { return };
        if peer.outbox.is_empty() || peer.in_flight_bytes >= IN_FLIGHT_BYTES_MAX {
            peer.stats.queue_bytes.store(peer.outbox.bytes() as u64, Relaxed);
            return;
        }
        let batch = peer.outbox.take(IN_FLIGHT_BYTES_MAX - peer.in_flight_bytes);
        for number in &batch.requests {
            peer.requests.mark_sent(*number);
        }
        peer.in_flight_bytes += batch.len;
        peer.sent_at = now;
        peer.stats.queue_bytes.store(peer.outbox.bytes() as u64, Relaxed);
        PeerStats::add(&peer.stats.frames_out, batch.frames);
        PeerStats::add(&peer.stats.log_messages_out, batch.log_messages);
        PeerStats::add(&peer.stats.bytes_out, batch.len);
        let notify_drained = peer.in_flight_bytes >= IN_FLIGHT_BYTES_MAX / 2;
        self.network_commands.push(NetworkCommand::Send { connection, bytes: batch.bytes, notify_drained });
    }

    /// The network has sent everything that it was given for a link.
    pub(super) fn drained(&mut self, id: ConnectionId) {
        let linked = self.sessions.get(&id).and_then(|session| session.linked());
        let peer = linked.and_then(|server| Some((server, self.peers.get_mut(&server)?)));
        let Some((server, peer)) = peer.filter(|(_, peer)| peer.link == Some(id)) else { return };
        peer.in_flight_bytes = 0;
        peer.will_send(server, &mut self.unsent);
    }

    /// Detects silent servers, and sends heartbeats if `is_beat`.
    pub(super) fn check_silence(&mut self, is_beat: bool) {
        let (now, timings) = (self.now, self.timings);
        let mut dead = Vec::new();
        for (server, peer) in &mut self.peers {
            let Some(link) = peer.link else { continue };
            let quiet = now.since(peer.received_at);
            if quiet >= timings.heartbeat_timeout {
                dead.push((link, peer.name.clone()));
                continue;
            }
            let is_quiet = quiet > timings.silent_after(peer.interval);
            if (is_quiet || peer.is_deaf) && !peer.is_silent {
                peer.is_silent = true;
                peer.stats.is_connected.store(0, Relaxed);
                let name = &peer.name;
                let text = match is_quiet {
                    true => format!("Nothing is received from server \"{name}\" {server}"),
                    false => format!("Server \"{name}\" {server} receives nothing from this one"),
                };
                self.effects.push(Effect::Log(LogLevel::Info, text));
                self.effects.push(Effect::Silent(*server));
            }
            let has_sent = now.since(peer.sent_at) < timings.heartbeat_interval() / 2;
            if is_beat && (!has_sent || is_quiet || peer.sent_deaf) {
                let flags = if is_quiet { flag::DEAF } else { 0 };
                peer.sent_deaf = is_quiet;
                peer.outbox.control(Kind::Heartbeat, flags, 0);
                peer.will_send(*server, &mut self.unsent);
            }
        }
        for (link, name) in dead {
            let seconds = timings.heartbeat_timeout.as_secs_f64();
            let text = format!("nothing was received from server \"{name}\" for {seconds} seconds");
            self.close_session(link, &Fault::silent(text));
        }
    }

    /// The link to `server` has ended: requests without a response fail.
    pub(super) fn unlink(&mut self, server: ServerId, why: &str) {
        let (now, random) = (self.now, self.random.clone());
        let peer = self.peer(server);
        peer.link = None;
        peer.outbox.clear();
        peer.stats.queue_bytes.store(0, Relaxed);
        peer.stats.is_connected.store(0, Relaxed);
        let pending = peer.requests.take_all();
        PeerStats::add(&peer.stats.requests_failed, pending.len());
        let (name, was_silent) = (peer.name.clone(), std::mem::replace(&mut peer.is_silent, true));
        for pending in pending {
            // A request whose last part was not sent cannot have been carried out.
            let error = match pending.is_sent {
                true => RpcError::NoResponse(server),
                false => RpcError::NotConnected(server),
            };
            self.effects.push(Effect::Response(pending.on_response, Err(error)));
        }
        self.effects.push(Effect::Unlinked(server));
        if !was_silent {
            self.effects.push(Effect::Silent(server));
        }
        self.log(LogLevel::Info, format!("Disconnected from server \"{name}\" {server}: {why}"));
        let interval = jittered(self.timings.redial_interval_min, &*random);
        self.dialer.disconnected(server, now, interval);
        self.tick_by(now);
    }
}
