//! The handle of a shard, local or remote.
//!
//! A handle belongs to one version of the catalog. Its known leader is shared by all versions and may change at any
//! time. So the caller gets a [`Route`] from the handle for each request, and reports a wrong route back to it.

use std::sync::Arc;

use datum::KeyRange;
use log::GroupId;
use shard::Shard;
use storage::TableId;

use super::known_leader::KnownLeader;
use crate::config::{ReplicaConfig, ServerId, ShardConfig};

/// A route to a replica. It may be outdated when it is used; then the replica responds with that.
#[derive(Clone, Copy)]
pub enum Route<'a> {
    /// A replica in this process.
    Local(&'a Arc<Shard>),
    /// A replica on another server, reached by requests.
    Remote(ServerId),
}

/// A shard of a table: the servers of its replicas, and its leader.
#[derive(Clone)]
pub struct ShardHandle(Arc<Inner>);

struct Inner {
    table: TableId,
    group: GroupId,
    range: KeyRange,
    replicas: Vec<ReplicaConfig>,
    leaving: Vec<ReplicaConfig>,
    own: ServerId,
    local: Option<Arc<Shard>>,
    known_leader: Arc<KnownLeader>,
    /// The server for outdated reads if there is no local replica.
    reader: Option<ServerId>,
}

impl ShardHandle {
    pub(crate) fn new(
        (own, reader): (ServerId, Option<ServerId>),
        shard: &ShardConfig,
        table: TableId,
        range: KeyRange,
        local: Option<Arc<Shard>>,
        known_leader: Arc<KnownLeader>,
    ) -> ShardHandle {
        let (group, replicas, leaving) = (shard.group, shard.replicas.clone(), shard.leaving.clone());
        ShardHandle(Arc::new(Inner {
            table,
            group,
            range,
            replicas,
            leaving,
            own,
            local,
            known_leader,
            reader,
        }))
    }

    #[must_use]
    pub fn table(&self) -> TableId {
        self.0.table
    }

    /// The group that orders its writes. Table and group together name the shard in requests.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.0.group
    }

    #[must_use]
    pub fn range(&self) -> &KeyRange {
        &self.0.range
    }

    /// Its replicas according to the catalog.
    #[must_use]
    pub fn replicas(&self) -> &[ReplicaConfig] {
        &self.0.replicas
    }

    /// All servers that may lead it, including servers whose replicas are being removed.
    pub(crate) fn servers(&self) -> impl Iterator<Item = ServerId> {
        self.0.replicas.iter().chain(&self.0.leaving).map(|replica| replica.server)
    }

    /// Whether a replica on another server may lead, now or soon: also if the local replica leads, because it may be
    /// removed.
    #[must_use]
    pub fn may_move(&self) -> bool {
        self.0.replicas.iter().any(|replica| replica.server != self.0.own)
    }

    /// The replica on this node, in any role.
    #[must_use]
    pub fn local(&self) -> Option<&Arc<Shard>> {
        self.0.local.as_ref()
    }

    /// Whether a local replica is in contact with the leader, so that no other server has to be asked. A replica
    /// without contact for an election timeout may be partitioned: in a group of two it cannot elect another leader,
    /// and the old one remains.
    #[must_use]
    pub fn has_leader_contact(&self) -> bool {
        self.local().is_some() && self.0.known_leader.is_from_local_log()
    }

    /// The leader as this node knows it, shared by all versions of this handle.
    #[must_use]
    pub fn known_leader(&self) -> &Arc<KnownLeader> {
        &self.0.known_leader
    }

    /// The route to the leader, for writes and for reads that must be up to date. `None` if no leader is known; then
    /// ask any replica, which may know it.
    #[must_use]
    pub fn leader(&self) -> Option<Route<'_>> {
        match self.local() {
            Some(local) if local.is_leader() => Some(Route::Local(local)),
            // If this server is named but its replica does not lead, the name is outdated.
            _ => self.0.known_leader.leader().filter(|leader| *leader != self.0.own).map(Route::Remote),
        }
    }

    /// As [`ShardHandle::nearest`], but without a local replica it is the replica assigned to this node: this spreads
    /// the reads of all nodes over all replicas, while each node reads from few servers.
    #[must_use]
    pub fn reader(&self, is_connected: impl Fn(ServerId) -> bool) -> Option<Route<'_>> {
        match self.0.reader {
            Some(reader)
                if self.0.local.is_none() && is_connected(reader) && self.0.known_leader.has_rows(reader) =>
            {
                Some(Route::Remote(reader))
            }
            _ => self.nearest(is_connected),
        }
    }

    /// Reports that `server` has no rows for an outdated read. For some seconds, other servers are preferred.
    pub fn report_without_rows(&self, server: ServerId) {
        self.0.known_leader.set_without_rows(server);
    }

    /// The route to any replica, the local one first, for reads that may be outdated. `is_connected` tells which
    /// servers can be asked; `None` if none can.
    #[must_use]
    pub fn nearest(&self, is_connected: impl Fn(ServerId) -> bool) -> Option<Route<'_>> {
        if let Some(local) = self.local().filter(|local| !local.is_recovering()) {
            return Some(Route::Local(local));
        }
        let leader = self.0.known_leader.leader();
        let mut servers = leader.into_iter().chain(self.0.replicas.iter().map(|replica| replica.server));
        servers.find(|server| *server != self.0.own && is_connected(*server)).map(Route::Remote)
    }

    /// The server of [`ShardHandle::leader`].
    #[must_use]
    pub fn leading_server(&self) -> Option<ServerId> {
        self.leader().map(|route| match route {
            Route::Local(_) => self.0.own,
            Route::Remote(server) => server,
        })
    }

    /// Reports that `server` does not lead and named `leader` instead, or that it could not be reached.
    ///
    /// If a local replica is in contact with the leader, the named server is used for one second, or until the log
    /// reports a leader, or until the named server denies to be the leader: the log may be late, but the other server's
    /// information may be outdated or a guess. Ignores a claim that this server leads, because its own replica knows
    /// better. Does nothing if the known leader has changed meanwhile.
    pub fn report_not_leader(&self, server: ServerId, leader: Option<ServerId>) {
        let leader = leader.filter(|leader| *leader != server && *leader != self.0.own);
        match self.has_leader_contact() {
            true => self.0.known_leader.correct_log(server, leader),
            false => self.0.known_leader.correct(server, leader),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use io::task;

    use super::*;
    use crate::config::fixture::{server, shard};

    fn remote_server(route: Option<Route<'_>>) -> Option<ServerId> {
        match route {
            Some(Route::Remote(server)) => Some(server),
            _ => None,
        }
    }

    #[test]
    fn a_claim_of_another_server_that_this_server_leads_is_ignored() {
        let known_leader = Arc::new(KnownLeader::new(Arc::default()));
        known_leader.report(Some(server(1)));
        let table = storage::TableId::from_uuid(uuid::Uuid::nil());
        let config = shard(3, b"", &[1, 9]);
        let handle = ShardHandle::new((server(9), None), &config, table, KeyRange::all(), None, known_leader);
        handle.report_not_leader(server(1), Some(server(9)));
        assert_eq!((handle.known_leader().leader(), handle.leading_server()), (None, None));
        handle.report_not_leader(server(1), Some(server(2)));
        assert_eq!(handle.leading_server(), Some(server(2)));
    }

    #[test]
    fn a_server_without_rows_is_not_read_from_for_a_while() {
        let known_leader = Arc::new(KnownLeader::new(Arc::default()));
        known_leader.report(Some(server(1)));
        let config = shard(3, b"", &[1, 2]);
        let table = storage::TableId::from_uuid(uuid::Uuid::nil());
        let (own, reader) = (server(9), Some(server(2)));
        let handle = ShardHandle::new((own, reader), &config, table, KeyRange::all(), None, known_leader);
        assert_eq!(remote_server(handle.nearest(|_| true)), Some(server(1)));
        assert_eq!(remote_server(handle.reader(|_| true)), reader);
        assert_eq!(remote_server(handle.reader(|other| other != server(2))), Some(server(1)));
        handle.report_without_rows(server(1));
        assert_eq!(remote_server(handle.reader(|_| true)), reader);
        handle.report_without_rows(server(2));
        assert_eq!(remote_server(handle.reader(|_| true)), Some(server(1)));
        let since = task::now() - super::super::known_leader::WITHOUT_ROWS_BACKOFF - Duration::from_millis(1);
        handle.known_leader().set_without_rows_at(server(2), since);
        assert_eq!(remote_server(handle.reader(|_| true)), reader);
    }
}
