//! One other server: its link, if there is one, and the requests sent to it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use io::{ConnectionId, Nanos};

use super::Effect;
use super::requests::PendingRequests;
use crate::link::hello::Hello;
use crate::link::outbox::{Outbox, QueueLimits};
use crate::link::stats::PeerStats;
use crate::{RpcError, ServerId};

/// How many replaced incarnations are remembered.
const REPLACED_MAX: usize = 16;
/// How long they are remembered: a process that dials later is alive.
const REPLACED_FOR: Duration = Duration::from_secs(60);

/// A new connection that waits until the present link has answered an echo, or has not.
pub(super) struct Probe {
    pub(super) number: u64,
    pub(super) waiting: ConnectionId,
    pub(super) until: Nanos,
}

pub(super) struct Peer {
    pub(super) name: String,
    pub(super) incarnation: Option<u64>,
    /// When the server's process was started, as its hello says.
    pub(super) started_ms: u64,
    replaced: VecDeque<(u64, Nanos)>,
    pub(super) link: Option<ConnectionId>,
    /// The highest number of a welcome of this incarnation.
    pub(super) welcome: u64,
    pub(super) outbox: Outbox,
    pub(super) requests: PendingRequests,
    /// Whether the receiver was notified that the server is silent.
    pub(super) is_silent: bool,
    /// Whether the server reports that it receives nothing from this node.
    pub(super) is_deaf: bool,
    /// Whether the last heartbeat reported that nothing is received from the server.
    pub(super) sent_deaf: bool,
    pub(super) received_at: Nanos,
    pub(super) sent_at: Nanos,
    pub(super) interval: Duration,
    /// Bytes handed to the network since it last reported that everything was sent.
    pub(super) in_flight_bytes: usize,
    /// Whether the server is in the machine's list of servers with queued data.
    pub(super) is_unsent: bool,
    pub(super) probe: Option<Probe>,
    pub(super) stats: Arc<PeerStats>,
}

impl Peer {
    pub(super) fn new(limits: QueueLimits) -> Peer {
        Peer {
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
    pub(super) fn is_later_than(&self, hello: &Hello) -> bool {
        self.incarnation != Some(hello.incarnation) && hello.started_ms < self.started_ms
    }

    /// Sets the incarnation of the server. An earlier one has ended.
    pub(super) fn set_incarnation(&mut self, hello: &Hello, now: Nanos) {
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

    /// Has the machine send this peer's queued data soon. `server` is the peer's id.
    pub(super) fn will_send(&mut self, server: ServerId, unsent: &mut Vec<ServerId>) {
        if !std::mem::replace(&mut self.is_unsent, true) {
            unsent.push(server);
        }
    }

    /// Data was received. Returns true if the server was silent before and receives data from this node.
    pub(super) fn mark_heard(&mut self) -> bool {
        if !self.is_silent || self.is_deaf {
            return false;
        }
        self.is_silent = false;
        self.stats.is_connected.store(1, Relaxed);
        true
    }

    /// A request has a response, or will have none. Does nothing if the request has expired before.
    pub(super) fn settle(&mut self, number: u64, result: Result<Bytes, RpcError>, effects: &mut Vec<Effect>) {
        let Some(pending) = self.requests.settle(number) else { return };
        if result.is_err() {
            PeerStats::add(&self.stats.requests_failed, 1);
        }
        effects.push(Effect::Response(pending.on_response, result));
    }

    /// Starts to use `link`.
    pub(super) fn link_opened(&mut self, link: ConnectionId, now: Nanos, interval: Duration) {
        self.link = Some(link);
        self.outbox.clear();
        self.in_flight_bytes = 0;
        self.received_at = now;
        self.sent_at = now;
        self.interval = interval;
        self.is_silent = false;
        self.is_deaf = false;
        self.sent_deaf = false;
        self.probe = None;
        PeerStats::add(&self.stats.links, 1);
        self.stats.is_connected.store(1, Relaxed);
    }
}
