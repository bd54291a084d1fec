//! One handle for a shard, wherever it lives, and who leads it now.
//!
//! A handle is of one version of the catalog; what it knows of the leader is shared by all versions
//! and changes while it is held. Whoever has a handle asks it for a [`Route`] each time, and tells it
//! what the other side said when the route was wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use datum::KeyRange;
use io::task::{self, Condvar};
use log::GroupId;
use parking_lot::Mutex;
use shard::Shard;
use storage::TableId;

use crate::{ReplicaConfig, ServerId, ShardConfig};

/// For so long an election may take.
const ELECTION: Duration = Duration::from_secs(3);

/// How to reach a replica at this moment. It may be wrong when it is used: the replica says so.
#[derive(Clone, Copy)]
pub enum Route<'a> {
    /// A replica in this process.
    Near(&'a Arc<Shard>),
    /// A replica on another server; ask it.
    Far(ServerId),
}

/// A shard of a table: where its replicas are and which of them leads.
#[derive(Clone)]
pub struct ShardHandle(Arc<Place>);

struct Place {
    table: TableId,
    group: GroupId,
    range: KeyRange,
    replicas: Vec<ReplicaConfig>,
    leaving: Vec<ReplicaConfig>,
    own: ServerId,
    near: Option<Arc<Shard>>,
    lead: Arc<Lead>,
}

/// Who leads one group, as far as this node knows: shared by every handle of the group.
pub struct Lead {
    known: Mutex<Known>,
    changed: Condvar,
    /// The log of this node does not get on, and hears nothing of any group.
    is_deaf: Arc<AtomicBool>,
}

struct Known {
    leader: Option<ServerId>,
    /// Since when that is so.
    since: Instant,
    // Counts the changes, so that nobody sleeps through one.
    news: u64,
}

impl Lead {
    /// Nobody is known to lead yet.
    pub(crate) fn new(is_deaf: Arc<AtomicBool>) -> Lead {
        let known = Known { leader: None, since: task::now(), news: 0 };
        Lead { known: Mutex::new(known), changed: Condvar::new(), is_deaf }
    }

    /// Whether a replica that is here hears who leads: its log gets on, and a leader is known, or was until just now.
    pub(crate) fn is_heard(&self) -> bool {
        let is_expected = |known: &Known| known.leader.is_some() || task::now() - known.since < ELECTION;
        !self.is_deaf.load(Ordering::Acquire) && is_expected(&self.known.lock())
    }

    /// The server that leads, if one is known.
    #[must_use]
    pub fn leader(&self) -> Option<ServerId> {
        self.known.lock().leader
    }

    /// Notes who leads; `None` when nobody does. Wakes those who wait for news.
    pub fn set(&self, leader: Option<ServerId>) {
        self.note(&mut self.known.lock(), leader);
    }

    /// The same, unless another than `wrong` is known to lead.
    fn correct(&self, wrong: ServerId, leader: Option<ServerId>) {
        let mut known = self.known.lock();
        if known.leader.is_none_or(|leader| leader == wrong) {
            self.note(&mut known, leader);
        }
    }

    fn note(&self, known: &mut Known, leader: Option<ServerId>) {
        if known.leader != leader {
            (known.leader, known.since) = (leader, task::now());
            known.news += 1;
            self.changed.notify_all();
        }
    }

    /// Wakes those who wait for news although the leader is the same.
    pub fn stir(&self) {
        self.known.lock().news += 1;
        self.changed.notify_all();
    }

    fn wait(&self, patience: Duration) {
        let deadline = task::now() + patience;
        let mut known = self.known.lock();
        let before = known.news;
        while known.news == before {
            if self.changed.wait_until(&mut known, deadline).timed_out() {
                return;
            }
        }
    }
}

impl ShardHandle {
    pub(crate) fn new(
        own: ServerId,
        shard: &ShardConfig,
        table: TableId,
        range: KeyRange,
        near: Option<Arc<Shard>>,
        lead: Arc<Lead>,
    ) -> ShardHandle {
        let (group, replicas, leaving) = (shard.group, shard.replicas.clone(), shard.leaving.clone());
        ShardHandle(Arc::new(Place { table, group, range, replicas, leaving, own, near, lead }))
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.0.table
    }

    /// The group that orders its writes. With the table, its name among nodes.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.0.group
    }

    /// The keys it answers for.
    #[must_use]
    pub fn range(&self) -> &KeyRange {
        &self.0.range
    }

    /// Where the catalog puts its replicas.
    #[must_use]
    pub fn replicas(&self) -> &[ReplicaConfig] {
        &self.0.replicas
    }

    /// Every server that may lead it: those where the catalog puts its replicas, and those that are to be
    /// rid of theirs.
    pub(crate) fn places(&self) -> impl Iterator<Item = ServerId> {
        self.0.replicas.iter().chain(&self.0.leaving).map(|replica| replica.server)
    }

    /// Whether a replica on another server may lead, now or before long: there is one, even where the own
    /// one leads but is on its way out.
    #[must_use]
    pub fn may_move(&self) -> bool {
        self.0.replicas.iter().any(|replica| replica.server != self.0.own)
    }

    /// This node's own replica, whatever its role.
    #[must_use]
    pub fn near(&self) -> Option<&Arc<Shard>> {
        self.0.near.as_ref()
    }

    /// Whether a replica here hears who leads, so that nobody need be asked. One that has not for longer than an election
    /// takes may have missed it: with one other that does not write, it can elect nobody, and that one leads on.
    #[must_use]
    pub fn hears(&self) -> bool {
        self.near().is_some() && self.0.lead.is_heard()
    }

    /// Who leads, shared by all versions of this handle.
    #[must_use]
    pub fn lead(&self) -> &Arc<Lead> {
        &self.0.lead
    }

    /// The replica that leads: for writes and for reads that must be up to date. `None` when no
    /// leader is known: [`ShardHandle::wait_for_news`], or ask any replica, which may know.
    #[must_use]
    pub fn leader(&self) -> Option<Route<'_>> {
        match self.near() {
            Some(near) if near.is_leader() => Some(Route::Near(near)),
            // A near replica that does not lead was named by old news.
            _ => self.0.lead.leader().filter(|leader| *leader != self.0.own).map(Route::Far),
        }
    }

    /// Any replica, the own one first, for reads that may be outdated; `is_connected` tells which
    /// servers can be asked. `None` when none can.
    #[must_use]
    pub fn nearest(&self, is_connected: impl Fn(ServerId) -> bool) -> Option<Route<'_>> {
        if let Some(near) = self.near().filter(|near| !near.is_void()) {
            return Some(Route::Near(near));
        }
        let leader = self.0.lead.leader();
        let mut servers = leader.into_iter().chain(self.0.replicas.iter().map(|replica| replica.server));
        servers.find(|server| *server != self.0.own && is_connected(*server)).map(Route::Far)
    }

    /// `server` was asked as the leader and said that it does not lead, but that `leader` does, or
    /// could not be reached. Does nothing if newer news came meanwhile.
    pub fn not_led_by(&self, server: ServerId, leader: Option<ServerId>) {
        self.0.lead.correct(server, leader.filter(|leader| *leader != server));
    }

    /// Sleeps until something about the leader changed, `patience` at most.
    pub fn wait_for_news(&self, patience: Duration) {
        self.0.lead.wait(patience);
    }
}
