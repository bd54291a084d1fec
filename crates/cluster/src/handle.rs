//! One handle for a shard, wherever it lives, and who leads it now.
//!
//! A handle is of one version of the catalog; what it knows of the leader is shared by all versions
//! and changes while it is held. Whoever has a handle asks it for a [`Route`] each time, and tells it
//! what the other side said when the route was wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use datum::KeyRange;
use io::task;
use log::GroupId;
use parking_lot::Mutex;
use shard::Shard;
use storage::TableId;

use crate::{ReplicaConfig, ServerId, ShardConfig};

/// For so long an election may take.
const ELECTION: Duration = Duration::from_secs(3);

/// Whoever had no rows to read is not asked for so long, if another can be.
const WITHOUT_ROWS: Duration = Duration::from_secs(5);

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
    reader: Option<ServerId>,
}

/// Who leads one group, as far as this node knows: shared by every handle of the group.
pub struct Lead {
    known: Mutex<Known>,
    /// The log of this node does not get on, and hears nothing of any group.
    is_deaf: Arc<AtomicBool>,
}

struct Known {
    /// Who is asked: whom the log of this node named last, or another server since then.
    leader: Option<ServerId>,
    /// Whom the log named.
    heard: Option<ServerId>,
    /// Since when the log names that one.
    since: Instant,
    /// Who had no rows to read, and when it was found out.
    without_rows: Option<(ServerId, Instant)>,
}

impl Lead {
    /// Nobody is known to lead yet.
    pub(crate) fn new(is_deaf: Arc<AtomicBool>) -> Lead {
        let known = Known { leader: None, heard: None, since: task::now(), without_rows: None };
        Lead { known: Mutex::new(known), is_deaf }
    }

    /// Whether a replica that is here hears who leads: its log gets on and names a leader, or did until just now.
    pub(crate) fn is_heard(&self) -> bool {
        let is_expected = |known: &Known| known.heard.is_some() || task::now() - known.since < ELECTION;
        !self.is_deaf.load(Ordering::Acquire) && is_expected(&self.known.lock())
    }

    /// The server that leads, if one is known.
    #[must_use]
    pub fn leader(&self) -> Option<ServerId> {
        self.known.lock().leader
    }

    /// The log of this node says who leads; `None` when nobody does.
    pub(crate) fn hear(&self, leader: Option<ServerId>) {
        let mut known = self.known.lock();
        if known.heard != leader {
            (known.heard, known.since) = (leader, task::now());
        }
        known.leader = leader;
    }

    /// Another server says who leads.
    pub(crate) fn find(&self, leader: Option<ServerId>) {
        self.known.lock().leader = leader;
    }

    /// `wrong` does not lead, but `leader`; if nobody is named, whom the log names where it `hears`. Unless another than
    /// `wrong` is known to lead.
    fn correct(&self, wrong: ServerId, leader: Option<ServerId>, hears: bool) {
        let mut known = self.known.lock();
        if known.leader.is_none_or(|leader| leader == wrong) {
            known.leader = leader.or(known.heard.filter(|_| hears));
        }
    }

    fn has_rows(&self, server: ServerId) -> bool {
        let without = self.known.lock().without_rows;
        without.is_none_or(|(other, since)| other != server || task::now() - since > WITHOUT_ROWS)
    }
}

impl ShardHandle {
    pub(crate) fn new(
        (own, reader): (ServerId, Option<ServerId>),
        shard: &ShardConfig,
        table: TableId,
        range: KeyRange,
        near: Option<Arc<Shard>>,
        lead: Arc<Lead>,
    ) -> ShardHandle {
        let (group, replicas, leaving) = (shard.group, shard.replicas.clone(), shard.leaving.clone());
        ShardHandle(Arc::new(Place { table, group, range, replicas, leaving, own, near, lead, reader }))
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
    /// leader is known: ask any replica, which may know.
    #[must_use]
    pub fn leader(&self) -> Option<Route<'_>> {
        match self.near() {
            Some(near) if near.is_leader() => Some(Route::Near(near)),
            // A near replica that does not lead was named by old news.
            _ => self.0.lead.leader().filter(|leader| *leader != self.0.own).map(Route::Far),
        }
    }

    /// As [`ShardHandle::nearest`], but where there is no own replica the one that is there for this node, so that the
    /// reads of all nodes go to all replicas, and those of one node to few servers.
    #[must_use]
    pub fn reader(&self, is_connected: impl Fn(ServerId) -> bool) -> Option<Route<'_>> {
        match self.0.reader {
            Some(reader) if self.0.near.is_none() && is_connected(reader) && self.0.lead.has_rows(reader) => {
                Some(Route::Far(reader))
            }
            _ => self.nearest(is_connected),
        }
    }

    /// `server` was asked for rows that may be outdated, and has none. Others are asked for a while.
    pub fn not_read_from(&self, server: ServerId) {
        self.0.lead.known.lock().without_rows = Some((server, task::now()));
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

    /// The server of [`ShardHandle::leader`].
    #[must_use]
    pub fn leading_server(&self) -> Option<ServerId> {
        self.leader().map(|route| match route {
            Route::Near(_) => self.0.own,
            Route::Far(server) => server,
        })
    }

    /// `server` was asked as the leader and said that it does not lead, but that `leader` does, or could not be reached.
    /// Who is named is asked from now on, until a replica here hears otherwise: that one may be late, and may be on its
    /// way out. That this server leads only its own replica can say. Does nothing if newer news came meanwhile.
    pub fn not_led_by(&self, server: ServerId, leader: Option<ServerId>) {
        let leader = leader.filter(|leader| *leader != server && *leader != self.0.own);
        self.0.lead.correct(server, leader, self.hears());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{server, shard};

    fn asked(route: Option<Route<'_>>) -> Option<ServerId> {
        match route {
            Some(Route::Far(server)) => Some(server),
            _ => None,
        }
    }

    #[test]
    fn another_server_may_know_sooner_than_the_log_who_leads_but_not_that_nobody_does() {
        let lead = Lead::new(Arc::default());
        lead.hear(Some(server(1)));
        lead.correct(server(1), None, true);
        assert_eq!(lead.leader(), Some(server(1)), "the log will say so");
        lead.correct(server(1), Some(server(2)), true);
        assert_eq!(lead.leader(), Some(server(2)));
        lead.correct(server(1), Some(server(3)), true);
        assert_eq!(lead.leader(), Some(server(2)), "an answer that came late");
        lead.correct(server(2), None, true);
        assert_eq!(lead.leader(), Some(server(1)), "whom the log still names");
        lead.hear(Some(server(3)));
        assert_eq!(lead.leader(), Some(server(3)));
        lead.correct(server(3), None, false);
        assert_eq!(lead.leader(), None, "where the log hears nothing it is to be asked for");
    }

    #[test]
    fn nobody_but_its_own_replica_tells_a_server_that_it_leads() {
        let lead = Arc::new(Lead::new(Arc::default()));
        lead.hear(Some(server(1)));
        let table = storage::TableId::from_uuid(uuid::Uuid::nil());
        let config = shard(3, b"", &[1, 9]);
        let handle = ShardHandle::new((server(9), None), &config, table, KeyRange::all(), None, lead);
        handle.not_led_by(server(1), Some(server(9)));
        assert_eq!((handle.lead().leader(), handle.leading_server()), (None, None));
        handle.not_led_by(server(1), Some(server(2)));
        assert_eq!(handle.leading_server(), Some(server(2)));
    }

    #[test]
    fn a_log_hears_only_what_it_said_itself() {
        let lead = Lead::new(Arc::default());
        lead.known.lock().since = task::now() - ELECTION;
        lead.find(Some(server(1)));
        assert_eq!((lead.is_heard(), lead.leader()), (false, Some(server(1))));
        lead.hear(Some(server(1)));
        assert!(lead.is_heard());
    }

    #[test]
    fn whoever_has_no_rows_is_not_read_from_for_a_while() {
        let lead = Arc::new(Lead::new(Arc::default()));
        lead.hear(Some(server(1)));
        let config = shard(3, b"", &[1, 2]);
        let table = storage::TableId::from_uuid(uuid::Uuid::nil());
        let (own, reader) = (server(9), Some(server(2)));
        let handle = ShardHandle::new((own, reader), &config, table, KeyRange::all(), None, lead);
        assert_eq!(asked(handle.nearest(|_| true)), Some(server(1)));
        assert_eq!(asked(handle.reader(|_| true)), reader);
        assert_eq!(asked(handle.reader(|asked| asked != server(2))), Some(server(1)));
        handle.not_read_from(server(1));
        assert_eq!(asked(handle.reader(|_| true)), reader);
        handle.not_read_from(server(2));
        assert_eq!(asked(handle.reader(|_| true)), Some(server(1)));
        let since = task::now() - WITHOUT_ROWS - Duration::from_millis(1);
        handle.lead().known.lock().without_rows = Some((server(2), since));
        assert_eq!(asked(handle.reader(|_| true)), reader);
    }
}
