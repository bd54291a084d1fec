//! What is said to a server over an open link: log_messages, requests, answers, heartbeats; and the end of a link.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use io::{ConnectionId, Nanos, NetworkCommand};

use super::fault::Fault;
use super::{Effect, Machine, Note};
use crate::link::dialer::jittered;
use crate::link::frame::{Kind, flag};
use crate::link::log_message::Message;
use crate::link::outbox::Put;
use crate::link::stats::PeerStats;
use crate::{OnResponse, RpcError, ServerId};

/// Bytes of one link that are with the network at a time. What waits behind them waits here, where
/// something short can still overtake something long.
const GIVEN_BYTES_MAX: usize = 256 << 10;

impl Machine {
    /// Asks, or says at once why not.
    pub(super) fn ask(&mut self, to: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        let deadline = self.now.after(timeout);
        let peer = self.peers.get_mut(&to).filter(|peer| peer.link.is_some());
        let Some(peer) = peer else {
            self.effects.push(Effect::Answer(on_response, Err(RpcError::NotConnected(to))));
            return;
        };
        let refused = match peer.outbox.request(peer.requests.number_next(), request) {
            Put::Waits => {
                PeerStats::add(&peer.stats.questions_out, 1);
                peer.requests.add(on_response, deadline);
                peer.will_send(to, &mut self.unsent);
                self.tick_by(deadline);
                return;
            }
            Put::Full => RpcError::NotConnected(to),
            Put::TooLong => RpcError::Refused { server: to, why: "the request is too long".to_owned() },
        };
        PeerStats::add(&peer.stats.questions_failed, 1);
        self.effects.push(Effect::Answer(on_response, Err(refused)));
    }

    pub(super) fn expire_questions(&mut self) {
        let now = self.now;
        let mut next_at: Option<Nanos> = None;
        for (server, peer) in &mut self.peers {
            let late = peer.requests.late(now);
            if !late.is_empty() {
                let withdrawn = peer.outbox.withdraw(&late);
                peer.will_send(*server, &mut self.unsent);
                for number in late {
                    let error = match withdrawn.contains(&number) {
                        true => RpcError::NotConnected(*server),
                        false => RpcError::NoAnswer(*server),
                    };
                    peer.settle(number, Err(error), &mut self.effects);
                }
            }
            next_at = [next_at, peer.requests.late_at()].into_iter().flatten().min();
        }
        if let Some(at) = next_at {
            self.tick_by(at);
        }
    }

    pub(super) fn mail(&mut self, to: ServerId, log_messages: Vec<Message>) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        if peer.link.is_none() {
            PeerStats::add(&peer.stats.letters_dropped, log_messages.len());
            return;
        }
        for log_message in log_messages {
            if peer.outbox.log_message(log_message) != Put::Waits {
                PeerStats::add(&peer.stats.letters_dropped, 1);
            }
        }
        peer.will_send(to, &mut self.unsent);
    }

    /// Answers a request that `to` asked on `link`.
    pub(super) fn reply(
        &mut self,
        to: ServerId,
        link: ConnectionId,
        number: u64,
        result: Result<Bytes, String>,
    ) {
        // The link on which it was asked may be over: then nobody waits for the answer.
        let Some(peer) = self.peers.get_mut(&to).filter(|peer| peer.link == Some(link)) else { return };
        let (kind, body) = match result {
            Ok(answer) => (Kind::Answer, answer),
            Err(why) => (Kind::Refusal, Bytes::from(why)),
        };
        peer.outbox.answer(kind, number, body);
        peer.will_send(to, &mut self.unsent);
    }

    /// Gives what waits for `server` to the network, as much as that should have.
    pub(super) fn send(&mut self, server: ServerId) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&server) else { return };
        let Some(connection) = peer.link else { return };
        if peer.outbox.is_empty() || peer.given_bytes >= GIVEN_BYTES_MAX {
            peer.stats.queue_bytes.store(peer.outbox.bytes() as u64, Relaxed);
            return;
        }
        let batch = peer.outbox.take(GIVEN_BYTES_MAX - peer.given_bytes);
        for number in &batch.requests {
            peer.requests.has_left(*number);
        }
        peer.given_bytes += batch.len;
        peer.spoke_at = now;
        peer.stats.queue_bytes.store(peer.outbox.bytes() as u64, Relaxed);
        PeerStats::add(&peer.stats.frames_out, batch.frames);
        PeerStats::add(&peer.stats.letters_out, batch.log_messages);
        PeerStats::add(&peer.stats.bytes_out, batch.len);
        let notify_drained = peer.given_bytes >= GIVEN_BYTES_MAX / 2;
        self.orders.push(NetworkCommand::Send { connection, bytes: batch.bytes, notify_drained });
    }

    /// Everything given to the network for a link has left.
    pub(super) fn drained(&mut self, id: ConnectionId) {
        let linked = self.sessions.get(&id).and_then(|session| session.linked());
        let peer = linked.and_then(|server| Some((server, self.peers.get_mut(&server)?)));
        let Some((server, peer)) = peer.filter(|(_, peer)| peer.link == Some(id)) else { return };
        peer.given_bytes = 0;
        peer.will_send(server, &mut self.unsent);
    }

    /// Finds out who is silent, and lets others hear from this node.
    pub(super) fn listen_for_silence(&mut self, is_beat: bool) {
        let (now, timings) = (self.now, self.timings);
        let mut dead = Vec::new();
        for (server, peer) in &mut self.peers {
            let Some(link) = peer.link else { continue };
            let quiet = now.since(peer.heard_at);
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
                    true => format!("Nothing is heard from server \"{name}\" {server}"),
                    false => format!("Server \"{name}\" {server} does not hear this one"),
                };
                self.effects.push(Effect::Note(Note::Info, text));
                self.effects.push(Effect::Silent(*server));
            }
            let has_spoken = now.since(peer.spoke_at) < timings.heartbeat_interval() / 2;
            if is_beat && (!has_spoken || is_quiet || peer.told_deaf) {
                let flags = if is_quiet { flag::DEAF } else { 0 };
                peer.told_deaf = is_quiet;
                peer.outbox.control(Kind::Heartbeat, flags, 0);
                peer.will_send(*server, &mut self.unsent);
            }
        }
        for (link, name) in dead {
            let seconds = timings.heartbeat_timeout.as_secs_f64();
            let text = format!("nothing was heard from server \"{name}\" for {seconds} seconds");
            self.dismiss(link, &Fault::silent(text));
        }
    }

    /// The link to `server` is over: what it owed is not coming.
    pub(super) fn unlink(&mut self, server: ServerId, why: &str) {
        let (now, random) = (self.now, self.random.clone());
        let peer = self.peer(server);
        peer.link = None;
        peer.outbox.clear();
        peer.stats.queue_bytes.store(0, Relaxed);
        peer.stats.is_connected.store(0, Relaxed);
        let pending = peer.requests.take_all();
        PeerStats::add(&peer.stats.questions_failed, pending.len());
        let (name, was_silent) = (peer.name.clone(), std::mem::replace(&mut peer.is_silent, true));
        for pending in pending {
            // The last part of it never left: nobody can have carried it out.
            let error = match pending.has_left {
                true => RpcError::NoAnswer(server),
                false => RpcError::NotConnected(server),
            };
            self.effects.push(Effect::Answer(pending.on_response, Err(error)));
        }
        self.effects.push(Effect::Unlinked(server));
        if !was_silent {
            self.effects.push(Effect::Silent(server));
        }
        self.note(Note::Info, format!("Disconnected from server \"{name}\" {server}: {why}"));
        let pause = jittered(self.timings.redial_least, &*random);
        self.dialer.lost(server, now, pause);
        self.tick_by(now);
    }
}
