//! One handle for a shard, local or remote.
//!
//! A handle belongs to one version of the catalog. The leader it knows is shared by all versions and changes while the
//! handle is held. The owner of a handle asks it for a [`Route`] each time, and reports a wrong route back to it.

use std::sync::Arc;

use datum::KeyRange;
use log::GroupId;
use shard::Shard;
use storage::TableId;

use super::known_leader::KnownLeader;
use crate::config::{ReplicaConfig, ServerId, ShardConfig};

/// How to reach a replica at this moment. It may be wrong when it is used: the replica says so then.
#[derive(Clone, Copy)]
pub enum Route<'a> {
    /// A replica in this process.
    Local(&'a Arc<Shard>),
    /// A replica on another server; ask it.
    Remote(ServerId),
}

/// A shard of a table: where its replicas are and which of them leads.
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
    /// The server to read from where any replica will do and there is none here.
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

    /// The table.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.0.table
    }

    /// The group that orders its writes. Table and group together name the shard in requests.
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

    /// Every server that may lead it: those where the catalog places its replicas, and those whose replicas are to be
    /// removed.
    pub(crate) fn servers(&self) -> impl Iterator<Item = ServerId> {
        self.0.replicas.iter().chain(&self.0.leaving).map(|replica| replica.server)
    }

    /// Whether a replica on another server may lead, now or soon. One may even where the replica here leads, if that is to
    /// be removed.
    #[must_use]
    pub fn may_move(&self) -> bool {
        self.0.replicas.iter().any(|replica| replica.server != self.0.own)
    }

    /// The replica on this node, in any role.
    #[must_use]
    pub fn local(&self) -> Option<&Arc<Shard>> {
        self.0.local.as_ref()
    }

    /// Whether a replica here hears from the leader, so that no other server has to be asked. A replica that has not heard
    /// for an election timeout may have missed it: in a group of two it cannot elect another leader, and the old one leads on.
    #[must_use]
    pub fn has_leader_contact(&self) -> bool {
        self.local().is_some() && self.0.known_leader.is_from_local_log()
    }

    /// The leader as this node knows it, shared by all versions of this handle.
    #[must_use]
    pub fn known_leader(&self) -> &Arc<KnownLeader> {
        &self.0.known_leader
    }

    /// The route to the leader, for writes and for reads that must be up to date. `None` when no leader is known: ask any
    /// replica, which may know it.
    #[must_use]
    pub fn leader(&self) -> Option<Route<'_>> {
        match self.local() {
            Some(local) if local.is_leader() => Some(Route::Local(local)),
            // A local replica that does not lead was named by an old report.
            _ => self.0.known_leader.leader().filter(|leader| *leader != self.0.own).map(Route::Remote),
        }
    }

    /// As [`ShardHandle::nearest`], but without a local replica it is the one assigned to this node: so the reads of all
    /// nodes spread over all replicas, and those of one node go to few servers.
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

    /// Reports that `server` has no rows for an outdated read. Other servers are asked for a while.
    pub fn report_without_rows(&self, server: ServerId) {
        self.0.known_leader.set_without_rows(server);
    }

    /// The route to any replica, the local one first, for reads that may be outdated; `is_connected` tells which servers can
    /// be asked. `None` when none can.
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

    /// Reports that `server`, asked as the leader, does not lead but named `leader`, or could not be reached.
    ///
    /// Where a replica here hears from the leader, the named server is asked for a second, until the log reports a leader or
    /// until it denies it: the log may be late, and the other server's word may be old or a guess. Only its own replica can say
    /// that this server leads. Does nothing if another leader is known by now.
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

    fn asked(route: Option<Route<'_>>) -> Option<ServerId> {
        match route {
            Some(Route::Remote(server)) => Some(server),
            _ => None,
        }
    }

    #[test]
    fn only_its_own_replica_makes_a_server_the_leader() {
        let lead = Arc::new(KnownLeader::new(Arc::default()));
        lead.report(Some(server(1)));
        let table = storage::TableId::from_uuid(uuid::Uuid::nil());
        let config = shard(3, b"", &[1, 9]);
        let handle = ShardHandle::new((server(9), None), &config, table, KeyRange::all(), None, lead);
        handle.report_not_leader(server(1), Some(server(9)));
        assert_eq!((handle.known_leader().leader(), handle.leading_server()), (None, None));
        handle.report_not_leader(server(1), Some(server(2)));
        assert_eq!(handle.leading_server(), Some(server(2)));
    }

    #[test]
    fn a_server_without_rows_is_not_read_from_for_a_while() {
        let lead = Arc::new(KnownLeader::new(Arc::default()));
        lead.report(Some(server(1)));
        let config = shard(3, b"", &[1, 2]);
        let table = storage::TableId::from_uuid(uuid::Uuid::nil());
        let (own, reader) = (server(9), Some(server(2)));
        let handle = ShardHandle::new((own, reader), &config, table, KeyRange::all(), None, lead);
        assert_eq!(asked(handle.nearest(|_| true)), Some(server(1)));
        assert_eq!(asked(handle.reader(|_| true)), reader);
        assert_eq!(asked(handle.reader(|asked| asked != server(2))), Some(server(1)));
        handle.report_without_rows(server(1));
        assert_eq!(asked(handle.reader(|_| true)), reader);
        handle.report_without_rows(server(2));
        assert_eq!(asked(handle.reader(|_| true)), Some(server(1)));
        let since = task::now() - super::super::known_leader::WITHOUT_ROWS_BACKOFF - Duration::from_millis(1);
        handle.known_leader().set_without_rows_at(server(2), since);
        assert_eq!(asked(handle.reader(|_| true)), reader);
    }
}
