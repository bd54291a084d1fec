//! One other server: its link, if there is one, and the requests sent to it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use io::{ConnectionId, Nanos};

use super::fault::Fault;
use super::output::{Effect, LogLevel, Output};
use super::requests::PendingRequests;
use super::schedule::Schedule;
use crate::link::frame::{Kind, flag};
use crate::link::hello::Hello;
use crate::link::outbox::{Outbox, QueueLimits};
use crate::link::stats::PeerStats;
use crate::{RpcError, ServerId};

/// How many replaced incarnations are remembered.
const REPLACED_MAX: usize = 16;
/// How long they are remembered: a process that dials later is alive.
const REPLACED_FOR: Duration = Duration::from_secs(60);

/// How many bytes of one link are handed to the network at a time. The rest stays in the outbox, where short messages
/// can still overtake long ones.
const IN_FLIGHT_BYTES_MAX: usize = 256 << 10;

/// A new connection that waits until the present link has answered an echo, or has not.
pub(super) struct Probe {
    pub(super) number: u64,
    pub(super) waiting: ConnectionId,
    pub(super) until: Nanos,
}

/// The decision about a connection whose other side consents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// There is no link, or it belongs to a process that has ended: the connection becomes the link.
    Accept,
    /// The present link has to answer an echo first.
    Probe,
}

pub(super) struct Peer {
    pub(super) server: ServerId,
    pub(super) name: String,
    incarnation: Option<u64>,
    /// When the server's process was started, as its hello says.
    started_ms: u64,
    replaced: VecDeque<(u64, Nanos)>,
    pub(super) link: Option<ConnectionId>,
    /// The highest number of a welcome of this incarnation.
    welcome: u64,
    pub(super) outbox: Outbox,
    pub(super) requests: PendingRequests,
    /// Whether the receiver was notified that the server is silent.
    is_silent: bool,
    /// Whether the server reports that it receives nothing from this node.
    is_deaf: bool,
    /// Whether the last heartbeat reported that nothing is received from the server.
    sent_deaf: bool,
    received_at: Nanos,
    sent_at: Nanos,
    interval: Duration,
    /// Bytes handed to the network since it last reported that everything was sent.
    in_flight_bytes: usize,
    /// Whether the server is in the list of servers with queued data.
    pub(super) is_unsent: bool,
    probe: Option<Probe>,
    pub(super) stats: Arc<PeerStats>,
}

impl Peer {
    pub(super) fn new(server: ServerId, limits: QueueLimits) -> Peer {
        Peer {
            server,
            name: String::new(),
            incarnation: None,
            started_ms: 0,
            replaced: VecDeque::new(),
            link: None,
            welcome: 0,
            outbox: Outbox::new(limits),
            requests: PendingRequests::default(),
            is_silent: true,
            is_deaf: false,
            sent_deaf: false,
            received_at: Nanos::default(),
            sent_at: Nanos::default(),
            interval: Duration::ZERO,
            in_flight_bytes: 0,
            is_unsent: false,
            probe: None,
            stats: Arc::default(),
        }
    }

    /// Whether the process that has sent `hello` was replaced by a later one.
    ///
    /// Data of a process that has ended may arrive after the hello of its successor, so that the ended process takes
    /// the successor's place. The successor is then accepted again, because it was started later.
    pub(super) fn was_replaced(&self, hello: &Hello, now: Nanos) -> bool {
        let is_it = |(known, at): &(u64, Nanos)| *known == hello.incarnation && now.since(*at) < REPLACED_FOR;
        hello.started_ms <= self.started_ms && self.replaced.iter().any(is_it)
    }

    /// Whether the process that has sent `hello` seems to be older than that of the present link.
    fn is_later_than(&self, hello: &Hello) -> bool {
        self.incarnation != Some(hello.incarnation) && hello.started_ms < self.started_ms
    }

    /// Sets the incarnation of the server. An earlier one has ended.
    fn set_incarnation(&mut self, hello: &Hello, now: Nanos) {
        if self.incarnation == Some(hello.incarnation) {
            return;
        }
        self.started_ms = hello.started_ms;
        if let Some(before) = self.incarnation.replace(hello.incarnation) {
            if self.replaced.len() == REPLACED_MAX {
                self.replaced.pop_front();
            }
            self.replaced.push_back((before, now));
        }
        self.welcome = 0;
    }

    /// Whether a welcome with this number or a higher one opened a link of the process that has sent `hello`.
    pub(super) fn has_seen(&self, hello: &Hello, welcome: u64) -> bool {
        self.incarnation == Some(hello.incarnation) && welcome <= self.welcome
    }

    /// Decides about a connection whose other side, which has sent `hello`, consents. Queues the echo request of
    /// `probe` if the present link has to answer one; `Err` if another connection waits for an echo already.
    pub(super) fn choose(&mut self, hello: &Hello, probe: Probe) -> Result<Choice, Fault> {
        // A connection of an older incarnation may be the last one of a process that has ended. So it waits for the
        // echo of the present link, like one of the same incarnation. A later process is accepted at once.
        let is_same = self.incarnation == Some(hello.incarnation);
        if self.link.is_none() || !is_same && !self.is_later_than(hello) {
            return Ok(Choice::Accept);
        }
        if self.probe.is_some() {
            return Err(Fault::duplicate());
        }
        self.outbox.control(Kind::Heartbeat, flag::ECHO_WANTED, probe.number);
        self.probe = Some(probe);
        Ok(Choice::Probe)
    }

    /// When the present link has to have answered an echo, if a connection waits for it.
    pub(super) fn echo_until(&self) -> Option<Nanos> {
        self.probe.as_ref().map(|probe| probe.until)
    }

    /// The connection that waits for an echo. It waits no longer.
    pub(super) fn take_waiting(&mut self) -> Option<ConnectionId> {
        self.probe.take().map(|probe| probe.waiting)
    }

    /// A connection has ended. It does not wait for an echo any more.
    pub(super) fn stop_waiting(&mut self, ended: ConnectionId) {
        self.probe.take_if(|probe| probe.waiting == ended);
    }

    /// The connection that waits for the echo with this number. It waits no longer.
    pub(super) fn echo_received(&mut self, number: u64) -> Option<ConnectionId> {
        self.probe.take_if(|probe| probe.number == number).map(|probe| probe.waiting)
    }

    /// Handles a heartbeat that is no echo. Returns true if an echo was queued.
    pub(super) fn heartbeat_received(&mut self, flags: u8, number: u64) -> bool {
        self.is_deaf = flags & flag::DEAF != 0;
        let is_echo_wanted = flags & flag::ECHO_WANTED != 0;
        if is_echo_wanted {
            self.outbox.control(Kind::Heartbeat, flag::ECHO, number);
        }
        is_echo_wanted
    }

    /// Adds the server to `unsent`, the list of servers with queued data to send.
    pub(super) fn will_send(&mut self, unsent: &mut Vec<ServerId>) {
        if !std::mem::replace(&mut self.is_unsent, true) {
            unsent.push(self.server);
        }
    }

    /// Hands queued data to the network, up to [`IN_FLIGHT_BYTES_MAX`].
    pub(super) fn send(&mut self, now: Nanos, output: &mut Output) {
        let Some(link) = self.link else { return };
        if self.outbox.is_empty() || self.in_flight_bytes >= IN_FLIGHT_BYTES_MAX {
            self.stats.queue_bytes.store(self.outbox.bytes() as u64, Relaxed);
            return;
        }
        let batch = self.outbox.take(IN_FLIGHT_BYTES_MAX - self.in_flight_bytes);
        for number in &batch.requests {
            self.requests.mark_sent(*number);
        }
        self.in_flight_bytes += batch.len;
        self.sent_at = now;
        self.stats.queue_bytes.store(self.outbox.bytes() as u64, Relaxed);
        PeerStats::add(&self.stats.frames_out, batch.frames);
        PeerStats::add(&self.stats.log_messages_out, batch.log_messages);
        PeerStats::add(&self.stats.bytes_out, batch.len);
        let notify_drained = self.in_flight_bytes >= IN_FLIGHT_BYTES_MAX / 2;
        output.send(link, batch.bytes, notify_drained);
    }

    /// The network has sent everything that it was given.
    pub(super) fn drained(&mut self) {
        self.in_flight_bytes = 0;
    }

    /// Data was received at `now`.
    pub(super) fn received(&mut self, now: Nanos) {
        self.received_at = now;
    }

    /// How long nothing was received.
    pub(super) fn quiet_time(&self, now: Nanos) -> Duration {
        now.since(self.received_at)
    }

    /// Marks a silent server as heard. Returns true if the server was silent before and receives data from this node.
    pub(super) fn mark_heard(&mut self) -> bool {
        if !self.is_silent || self.is_deaf {
            return false;
        }
        self.is_silent = false;
        self.stats.is_connected.store(1, Relaxed);
        true
    }

    /// Reports the server as silent if nothing was received from it for a while, or if it reports that about this node.
    pub(super) fn check_silence(&mut self, schedule: &Schedule, output: &mut Output) {
        let is_quiet = self.is_quiet(schedule);
        if !is_quiet && !self.is_deaf || self.is_silent {
            return;
        }
        self.is_silent = true;
        self.stats.is_connected.store(0, Relaxed);
        let (name, server) = (&self.name, self.server);
        let text = match is_quiet {
            true => format!("No data received from server \"{name}\" {server}"),
            false => format!("Server \"{name}\" {server} receives no data from this one"),
        };
        output.log(LogLevel::Info, text);
        output.add(Effect::Silent(server));
    }

    /// Queues a heartbeat if nothing was sent for a while, or if it has to report that nothing is received from the
    /// server, or no longer has to. Returns true if it was queued.
    pub(super) fn add_heartbeat(&mut self, schedule: &Schedule) -> bool {
        let is_quiet = self.is_quiet(schedule);
        let has_sent = schedule.now().since(self.sent_at) < schedule.timings().heartbeat_interval() / 2;
        if has_sent && !is_quiet && !self.sent_deaf {
            return false;
        }
        let flags = if is_quiet { flag::DEAF } else { 0 };
        self.sent_deaf = is_quiet;
        self.outbox.control(Kind::Heartbeat, flags, 0);
        true
    }

    fn is_quiet(&self, schedule: &Schedule) -> bool {
        self.quiet_time(schedule.now()) > schedule.timings().silent_after(self.interval)
    }

    /// A request has a response, or will have none. Does nothing if the request has expired before.
    pub(super) fn settle(&mut self, number: u64, result: Result<Bytes, RpcError>, output: &mut Output) {
        let Some(pending) = self.requests.settle(number) else { return };
        if result.is_err() {
            PeerStats::add(&self.stats.requests_failed, 1);
        }
        output.add(Effect::Response(pending.on_response, result));
    }

    /// Fails the requests whose deadline has passed. Returns true if there was one.
    pub(super) fn expire_requests(&mut self, now: Nanos, output: &mut Output) -> bool {
        let expired = self.requests.expired(now);
        if expired.is_empty() {
            return false;
        }
        let withdrawn = self.outbox.withdraw(&expired);
        for number in expired {
            let error = match withdrawn.contains(&number) {
                true => RpcError::NotConnected(self.server),
                false => RpcError::NoResponse(self.server),
            };
            self.settle(number, Err(error), output);
        }
        true
    }

    /// Starts to use `link`, which the welcome with the number `welcome` has opened. The server has sent `hello` there.
    pub(super) fn link_opened(&mut self, link: ConnectionId, welcome: u64, hello: &Hello, now: Nanos) {
        self.set_incarnation(hello, now);
        self.welcome = welcome;
        self.link = Some(link);
        self.outbox.clear();
        self.in_flight_bytes = 0;
        self.received_at = now;
        self.sent_at = now;
        self.interval = Duration::from_millis(hello.heartbeat_ms);
        self.is_silent = false;
        self.is_deaf = false;
        self.sent_deaf = false;
        self.probe = None;
        PeerStats::add(&self.stats.links, 1);
        self.stats.is_connected.store(1, Relaxed);
    }

    /// The link has ended: requests without a response fail.
    pub(super) fn link_ended(&mut self, why: &str, output: &mut Output) {
        let server = self.server;
        self.link = None;
        self.outbox.clear();
        self.stats.queue_bytes.store(0, Relaxed);
        self.stats.is_connected.store(0, Relaxed);
        let pending = self.requests.take_all();
        PeerStats::add(&self.stats.requests_failed, pending.len());
        for pending in pending {
            // A request whose last part was not sent cannot have been carried out.
            let error = match pending.is_sent {
                true => RpcError::NoResponse(server),
                false => RpcError::NotConnected(server),
            };
            output.add(Effect::Response(pending.on_response, Err(error)));
        }
        output.add(Effect::Unlinked(server));
        if !std::mem::replace(&mut self.is_silent, true) {
            output.add(Effect::Silent(server));
        }
        output.log(LogLevel::Info, format!("Disconnected from server \"{}\" {server}: {why}", self.name));
    }
}
