//! One other server: the link to it, if there is one, and what is asked of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use io::{ConnectionId, Nanos};

use super::Effect;
use super::requests::Questions;
use crate::link::hello::Hello;
use crate::link::outbox::{Outbox, QueueLimits};
use crate::link::stats::PeerStats;
use crate::{RpcError, ServerId};

/// Incarnations that are remembered after they were replaced.
const REPLACED_MAX: usize = 16;
/// And for so long: whoever dials after that is alive.
const REPLACED_FOR: Duration = Duration::from_secs(60);

/// A newcomer waits to see whether the present link answers.
pub(super) struct Probe {
    pub(super) number: u64,
    pub(super) newcomer: ConnectionId,
    pub(super) until: Nanos,
}

pub(super) struct Peer {
    pub(super) name: String,
    pub(super) incarnation: Option<u64>,
    /// When that process says that it was started.
    pub(super) started_ms: u64,
    replaced: VecDeque<(u64, Nanos)>,
    pub(super) link: Option<ConnectionId>,
    /// The highest welcome of this incarnation.
    pub(super) welcome: u64,
    pub(super) outbox: Outbox,
    pub(super) requests: Questions,
    /// It was told that the server is silent.
    pub(super) is_silent: bool,
    /// The server says that it hears nothing from here.
    pub(super) is_deaf: bool,
    /// It was told that nothing is heard from it.
    pub(super) told_deaf: bool,
    pub(super) heard_at: Nanos,
    pub(super) spoke_at: Nanos,
    pub(super) interval: Duration,
    /// Bytes given to the network since it last said that all have left.
    pub(super) given_bytes: usize,
    /// It stands in the machine's list of those to which something is to be sent.
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
            requests: Questions::default(),
            is_silent: true,
            is_deaf: false,
            told_deaf: false,
            heard_at: Nanos::default(),
            spoke_at: Nanos::default(),
            interval: Duration::ZERO,
            given_bytes: 0,
            is_unsent: false,
            probe: None,
            stats: Arc::default(),
        }
    }

    /// Whether the process that says so ended when a later one began.
    ///
    /// What a process that is gone had sent may arrive after the first words of the next one, and so take
    /// its place: one that was started later is believed, and nobody is kept away for good.
    pub(super) fn was_replaced(&self, hello: &Hello, now: Nanos) -> bool {
        let is_it = |(known, at): &(u64, Nanos)| *known == hello.incarnation && now.since(*at) < REPLACED_FOR;
        hello.started_ms <= self.started_ms && self.replaced.iter().any(is_it)
    }

    /// Whether the process that says so seems to be an earlier one than that of the present link.
    pub(super) fn is_later_than(&self, hello: &Hello) -> bool {
        self.incarnation != Some(hello.incarnation) && hello.started_ms < self.started_ms
    }

    /// From now on this is the incarnation; the one before has ended.
    pub(super) fn begins(&mut self, hello: &Hello, now: Nanos) {
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

    /// Has the machine send soon what waits for this peer, which is `server`.
    pub(super) fn will_send(&mut self, server: ServerId, unsent: &mut Vec<ServerId>) {
        if !std::mem::replace(&mut self.is_unsent, true) {
            unsent.push(server);
        }
    }

    /// Something has arrived: true if it was silent until now, and hears this node.
    pub(super) fn hears_again(&mut self) -> bool {
        if !self.is_silent || self.is_deaf {
            return false;
        }
        self.is_silent = false;
        self.stats.is_connected.store(1, Relaxed);
        true
    }

    /// A request is answered, or never will be. One whose time is up has been on_response already.
    pub(super) fn settle(&mut self, number: u64, result: Result<Bytes, RpcError>, effects: &mut Vec<Effect>) {
        let Some(pending) = self.requests.settle(number) else { return };
        if result.is_err() {
            PeerStats::add(&self.stats.questions_failed, 1);
        }
        effects.push(Effect::Answer(pending.on_response, result));
    }

    /// A link opens.
    pub(super) fn opens(&mut self, link: ConnectionId, now: Nanos, interval: Duration) {
        self.link = Some(link);
        self.outbox.clear();
        self.given_bytes = 0;
        self.heard_at = now;
        self.spoke_at = now;
        self.interval = interval;
        self.is_silent = false;
        self.is_deaf = false;
        self.told_deaf = false;
        self.probe = None;
        PeerStats::add(&self.stats.links, 1);
        self.stats.is_connected.store(1, Relaxed);
    }
}
