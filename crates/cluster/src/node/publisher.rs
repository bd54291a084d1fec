//! Publishes the catalog on this node: whenever the catalog's group has applied rows here, reads them, opens and discards
//! replicas, and shows the new version.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use datum::KeyRange;
use io::task;
use log::{GroupId, Log};
use shard::Shard;
use storage::TableId;

use super::replica_host::ReplicaHost;
use super::restart_state::RestartState;
use crate::catalog::row::CatalogRow;
use crate::catalog::{Catalog, CatalogClient, CatalogWatcher, Handles};
use crate::config::{CATALOG_GROUP, CATALOG_TABLE, ServerId, TableConfig};
use crate::error::{AdminError, OpenError};
use crate::events::Notifier;
use crate::feeds::Feeds;
use crate::index::Indexes;
use crate::locks::{Rank, RankedGuard, RankedMutex};
use crate::reshard::PendingHandovers;
use crate::routing::{LocalReplicas, ReplicaTransport, TableHandle};
use crate::rpc::Peers;

/// How long this node stands for election in a new shard that has no leader.
const FIRST_LEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Publishes versions of the catalog, one at a time.
pub(super) struct Publisher {
    own: ServerId,
    peers: Arc<Peers>,
    transport: Arc<ReplicaTransport>,
    log: Arc<dyn Log>,
    local: Arc<LocalReplicas>,
    catalog: Arc<CatalogClient>,
    state_changes: Arc<Notifier>,
    /// The replica of the catalog.
    shard: Arc<Shard>,
    pub(super) host: Arc<ReplicaHost>,
    indexes: Arc<Indexes>,
    feeds: Arc<Feeds>,
    pending: Arc<PendingHandovers>,
    pub(super) restart: Arc<RestartState>,
    /// Held while replicas are opened and discarded.
    publishing: RankedMutex<()>,
    /// Whether the data that a crash left behind was deleted.
    is_swept: AtomicBool,
}

impl Publisher {
    pub(super) fn new(
        handles: &Handles,
        shard: Arc<Shard>,
        host: Arc<ReplicaHost>,
        (indexes, feeds): (Arc<Indexes>, Arc<Feeds>),
        pending: Arc<PendingHandovers>,
        restart: Arc<RestartState>,
    ) -> Publisher {
        Publisher {
            own: handles.own,
            peers: handles.peers.clone(),
            transport: handles.transport.clone(),
            log: handles.log.clone(),
            local: handles.local.clone(),
            catalog: handles.catalog.clone(),
            state_changes: handles.state_changes.clone(),
            shard,
            host,
            indexes,
            feeds,
            pending,
            restart,
            publishing: RankedMutex::new(Rank::Publishing, ()),
            is_swept: AtomicBool::new(false),
        }
    }

    fn hold(&self) -> RankedGuard<'_, ()> {
        self.publishing.lock()
    }

    /// Shows the catalog to `watcher`, now and whenever it has changed. Only the first watcher is kept.
    pub(super) fn watch(&self, watcher: CatalogWatcher) {
        // Held so that the watcher misses no version, and no two calls run at the same time.
        let _one_at_a_time = self.hold();
        self.catalog.view().watch(watcher);
    }

    /// Reads the catalog as it is applied here, opens its replicas, shows the new version, and discards replicas that it no
    /// longer places here.
    pub(super) fn publish(&self) -> Result<(), OpenError> {
        let _one_at_a_time = self.hold();
        let before = self.catalog.shown();
        let is_caught_up = self.restart.check();
        let mut catalog = Catalog::default();
        catalog.group_next = CATALOG_GROUP.0 + 1;
        let Some(rows) = self.catalog_rows()? else { return Ok(()) };
        for row in rows {
            match row {
                CatalogRow::Db(db) => catalog.put_database(db),
                CatalogRow::Groups(next) => catalog.group_next = next,
                CatalogRow::Version(version) => catalog.version = version,
                CatalogRow::User(user) => catalog.put_user(user),
                CatalogRow::Grant(grant) => catalog.put_grant(grant),
                CatalogRow::SavedQuery(query) => catalog.put_saved_query(query),
                CatalogRow::Table(config) => {
                    let table = self.table_handle(&before, &catalog, config)?;
                    catalog.put_table(table);
                }
                CatalogRow::Server(server) => catalog.put_server(server),
                CatalogRow::Heartbeat(seconds) => catalog.set_heartbeat(seconds),
                CatalogRow::Removed(server) => catalog.remove_server(server),
                CatalogRow::Dropped { .. } => {}
            }
        }
        let catalogs = catalog.servers().into_iter().map(|server| (server.catalog.peer, server.id));
        self.transport.learn(catalogs.collect::<Vec<_>>());
        let catalog = Arc::new(catalog);
        self.catalog.view().show(Arc::clone(&catalog), || self.restart.set_shown(is_caught_up));
        self.indexes.notify_change();
        self.feeds.catalog_changed();
        self.state_changes.notify();
        self.update_transport(&before, &catalog);
        self.catalog.view().notify_watcher(&catalog);
        self.indexes.erase_dropped(&before, &catalog)?;
        self.host.discard_strays(&catalog)?;
        Ok(self.host.clear_leftovers(&catalog)?)
    }

    /// Passes changes of the heartbeat, of names and removals of servers to the links.
    fn update_transport(&self, before: &Catalog, catalog: &Catalog) {
        let Some(transport) = self.peers.transport() else { return };
        if before.heartbeat_secs() != catalog.heartbeat_secs() {
            transport.set_heartbeat(Duration::from_secs(catalog.heartbeat_secs()));
        }
        // The name of a proxy does not change after its start.
        for server in catalog.servers().into_iter().filter(|server| !server.is_proxy) {
            if before.server_name(server.id) != Some(&server.name) {
                transport.set_name(server.id, &server.name);
            }
        }
        catalog
            .removed()
            .filter(|server| !before.is_removed(*server))
            .for_each(|server| transport.forget(server));
    }

    /// Returns once this node shows a catalog that contains it; false if that takes longer than `timeout`. Only a node
    /// that has just joined does not show one.
    pub(super) fn await_catalog(&self, timeout: Duration) -> bool {
        self.catalog.view().wait_until(|catalog| names_server(catalog, self.own), timeout)
    }

    /// Whether this node shows a complete catalog that contains it.
    fn shows_itself(&self) -> bool {
        names_server(&self.catalog.guard(), self.own)
    }

    fn table_handle(
        &self,
        before: &Catalog,
        catalog: &Catalog,
        mut config: TableConfig,
    ) -> Result<Arc<TableHandle>, OpenError> {
        let db = catalog.database_by_id(config.db).map(|db| db.config.clone()).ok_or_else(|| {
            OpenError::CatalogRow {
                key: config.name.to_string(),
                why: "its database does not exist".to_owned(),
            }
        })?;
        if let Some(known) = before.table_by_id(config.id)
            && known.config == config
            && known.db == db
            && !self.host.has_earlier(&known.config)
            && !self.pending.is_deferred(known.config.id)
        {
            return Ok(Arc::clone(known));
        }
        let shards = self.host.open_shards(&mut config)?;
        Ok(Arc::new(TableHandle::new(db, config, shards)))
    }

    /// The rows of the catalog, databases before tables. `None` if a version is shown and a copy is replacing the rows: rows
    /// that the copy has not brought yet would look deleted. The end of the copy pushes another event.
    fn catalog_rows(&self) -> Result<Option<Vec<CatalogRow>>, OpenError> {
        let generation = self.shard.rows_generation();
        let snapshot = self.shard.snapshot().map_err(AdminError::from)?;
        let mut scan = snapshot.scan(&KeyRange::all(), storage::Direction::Ascending);
        let mut rows = Vec::new();
        while let Some((_, object)) = scan.next().map_err(AdminError::from)? {
            rows.push(CatalogRow::from_object(&object)?);
        }
        if !self.shard.is_current(generation) && self.shows_itself() {
            return Ok(None);
        }
        rows.sort_by_key(|row| !matches!(row, CatalogRow::Db(_)));
        Ok(Some(rows))
    }

    /// Discards the replica of a group from which the leader has removed it.
    pub(super) fn discard_removed(&self, group: GroupId) -> Result<(), AdminError> {
        if group == CATALOG_GROUP {
            tracing::error!("this server was removed from its cluster");
            return Ok(());
        }
        let open = self.local.lock().get(&group).map(|open| (open.table, open.own));
        match open {
            // The open replica is not the removed one but its replacement.
            Some((_, own)) if self.log.group_status(group).is_ok_and(|status| status.own == own) => Ok(()),
            Some((table, _)) if table.uuid() != CATALOG_TABLE => {
                self.host.discard_removed(&self.catalog.shown(), table, group)?;
                self.republish(table)
            }
            _ => Ok(()),
        }
    }

    /// Shows the same catalog with a new handle for a table, after a replica here was opened or closed.
    fn republish(&self, table: TableId) -> Result<(), AdminError> {
        let _one_at_a_time = self.hold();
        let mut catalog = (*self.catalog.shown()).clone();
        let Some(handle) = catalog.table_by_id(table).cloned() else { return Ok(()) };
        let mut config = handle.config.clone();
        let shards = self.host.open_shards(&mut config)?;
        catalog.put_table(Arc::new(TableHandle::new(handle.db.clone(), config, shards)));
        self.catalog.view().replace_handles(Arc::new(catalog));
        self.indexes.notify_change();
        self.state_changes.notify();
        Ok(())
    }

    /// Opens deferred replicas that can be opened now, and stands for election again in new groups that have no leader yet.
    pub(super) fn continue_handovers(&self) -> Result<(), AdminError> {
        let (deferred, starting) = {
            let pending = self.pending.lock();
            let starting: Vec<_> = pending.starting.iter().map(|(group, from)| (*group, *from)).collect();
            (pending.deferred.keys().copied().collect::<Vec<_>>(), starting)
        };
        for table in deferred {
            self.republish_if_possible(table)?;
        }
        for (group, from) in starting {
            // Asks the replica itself: the leader in the shard's handle may be a guess.
            let local = self.local.shard_of(group);
            let is_led = local.is_none_or(|local| local.leads() || local.leader().is_some());
            if is_led || task::now() > from + FIRST_LEADER_TIMEOUT {
                self.pending.lock().starting.remove(&group);
            } else if task::now() >= from {
                // Other servers may have opened their replicas only after the last candidacy.
                self.log.campaign(group);
            }
        }
        Ok(())
    }

    fn republish_if_possible(&self, table: TableId) -> Result<(), AdminError> {
        let catalog = self.catalog.shown();
        let Some(handle) = catalog.table_by_id(table) else {
            self.pending.set_deferred(table, false);
            return Ok(());
        };
        let config = &handle.config;
        for (at, shard) in config.shards.iter().enumerate() {
            let is_here = self.local.contains(shard.group);
            let is_wanted = !is_here && shard.replica_on(self.own).is_some();
            if is_wanted && self.host.may_open(config, at)? {
                return self.republish(table);
            }
        }
        Ok(())
    }

    /// Deletes the data of removed replicas whose tombstones have become durable since.
    pub(super) fn delete_removed_replicas(&self) -> Result<(), AdminError> {
        let groups = self.host.due_tombstones();
        if groups.is_empty() {
            return Ok(());
        }
        let _one_at_a_time = self.hold();
        self.host.delete_tombstoned(&self.catalog.shown(), &groups)
    }

    /// Deletes the data that a crash left behind, once the catalog has caught up.
    pub(super) fn sweep_when_caught_up(&self) -> Result<(), AdminError> {
        let may_sweep = self.restart.is_shown() && self.shows_itself();
        match may_sweep && !self.is_swept.load(Ordering::Acquire) {
            true => self.sweep(),
            false => Ok(()),
        }
    }

    /// Deletes the remains of removed replicas, tables and indexes that a crash left behind.
    ///
    /// Deferred while the catalog shown here may be older than the version that this node last acted on: data that the later
    /// version places here would look left behind. The event loop sweeps as soon as the catalog has caught up. Where damage
    /// prevents it, the data stays.
    pub(super) fn sweep(&self) -> Result<(), AdminError> {
        let _one_at_a_time = self.hold();
        // A table that has sealed groups needs their rows until all new shards are open.
        let has_sealed_groups = |table: &&Arc<TableHandle>| !table.config.history.sealed.is_empty();
        if !self.restart.is_shown() || self.catalog.shown().tables().iter().any(has_sealed_groups) {
            return Ok(());
        }
        match self.host.sweep().and_then(|is_complete| is_complete.then(|| self.indexes.sweep()).transpose())
        {
            Ok(None) => return Ok(()),
            Ok(Some(())) => {}
            Err(cause) if cause.is_damage() => {
                tracing::warn!("remains of dropped tables and indexes stay until the next start: {cause}");
            }
            Err(cause) => return Err(cause),
        }
        self.is_swept.store(true, Ordering::Release);
        Ok(())
    }
}

/// Whether a catalog is complete and contains a server.
fn names_server(catalog: &Catalog, server: ServerId) -> bool {
    catalog.server(server).is_some() && catalog.user("admin").is_some()
}
