//! The node's own thread: keeps what this node holds as the catalog says, whoever changed it.
//!
//! The catalog is what group zero has applied here. Whenever that moves, the rows are read, replicas
//! are opened and discarded, and the new picture is published. All other work of this thread repeats
//! itself until nothing is left to do, so a failure is only put off.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use datum::{KeyRange, Object, Text};
use io::task;
use storage::TableId;

use crate::answer::decode_word;
use crate::catalog_row::CatalogRow;
use crate::node::{CATALOG_GROUP, CATALOG_TABLE, Core};
use crate::post::Event;
use crate::request::Request;
use crate::tend::Settled;
use crate::{
    AdminError, Catalog, DbConfig, DbId, OpenError, ReplicaConfig, ServerConfig, TableConfig, TableHandle,
    User,
};

/// How often groups are looked at without news.
const LOOK: Duration = Duration::from_millis(500);

/// The same while shards are on their way from old groups to new ones.
const LOOK_SOON: Duration = Duration::from_millis(40);

/// Pause between two requests who leads the catalog.
const PAUSE: Duration = Duration::from_millis(20);

impl Core {
    /// Works until the node is dropped.
    pub(crate) fn keep(self: &Arc<Self>) {
        let mut knows_its_past = self.past_is_known.load(Ordering::Acquire);
        loop {
            let is_busy = task::lock(&self.pending).is_busy();
            let events = self.post.next(if is_busy { LOOK_SOON } else { LOOK });
            if events.contains(&Event::Stop) {
                return;
            }
            // The end of the log may be reached by entries that are not about rows.
            if !knows_its_past && self.knows_its_past() {
                knows_its_past = true;
                self.post.tell(Event::Catalog);
            }
            for event in &events {
                let done = match *event {
                    Event::Catalog => self.publish(),
                    Event::Removed(group) => self.forget_removed(group).map_err(OpenError::from),
                    Event::NeedsRows(group) => {
                        // Perhaps a copy that was offered is complete by now.
                        if self.needs_rows(group) {
                            self.begin_copy(group);
                        }
                        Ok(())
                    }
                    Event::CopyOffered(group, start) => {
                        self.take_offer(group, start);
                        Ok(())
                    }
                    Event::Behind(group, to) => {
                        self.offer_copy(group, to);
                        Ok(())
                    }
                    Event::Role(_) | Event::Marked(_) | Event::Stop => Ok(()),
                };
                if let Err(error) = done {
                    tracing::error!("the node could not follow its catalog: {error}");
                    self.post.tell(*event);
                    task::sleep(LOOK);
                }
            }
            if let Err(error) = self.forget_departed() {
                tracing::error!("what has gone from here is not forgotten yet: {error}");
            }
            if let Err(error) = self.go_on_with_succession() {
                tracing::error!("new shards could not be opened yet: {error}");
                task::sleep(LOOK);
            }
            let may_sweep = self.past_is_shown.load(Ordering::Acquire) && self.shows_itself();
            if may_sweep
                && !self.is_swept.load(Ordering::Acquire)
                && let Err(error) = self.sweep_left_behind()
            {
                tracing::error!("what a crash left behind is still here: {error}");
            }
        }
    }

    /// Brings the members of groups about until the node is dropped.
    pub(crate) fn keep_tending(&self) {
        let mut settled = Settled::default();
        while !self.stopping.load(Ordering::Acquire) {
            self.tend(&mut settled);
            self.forget_copies();
            task::park_timeout(if self.awaits_succession() { LOOK_SOON } else { LOOK });
        }
    }

    /// Reads the catalog as it is applied here, opens and discards replicas, and shows the new
    /// picture to everybody.
    pub(crate) fn publish(&self) -> Result<(), OpenError> {
        let _one_at_a_time = task::lock(&self.publishing);
        let before = self.catalog();
        let knows_its_past = self.knows_its_past();
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
        self.post.learn(catalogs.collect::<Vec<_>>());
        let catalog = Arc::new(catalog);
        {
            // Under the lock, so that nobody who waits misses it.
            let _waiting = self.waiting.lock();
            self.catalog.store(Arc::clone(&catalog));
        }
        self.past_is_shown.fetch_or(knows_its_past, Ordering::AcqRel);
        self.published.notify_all();
        self.index_news.tell();
        self.post.news().tell();
        self.tell_wire(&before, &catalog);
        if let Some(watcher) = self.watcher.get() {
            watcher(&catalog);
        }
        self.erase_lost_indexes(&before, &catalog)?;
        self.discard_strays(&catalog)?;
        Ok(self.clear_leavings(&catalog)?)
    }

    /// Lets the links know what concerns them.
    fn tell_wire(&self, before: &Catalog, catalog: &Catalog) {
        let Some(wire) = self.post.wire() else { return };
        if before.heartbeat_secs() != catalog.heartbeat_secs() {
            wire.set_heartbeat(Duration::from_secs(catalog.heartbeat_secs()));
        }
        // A proxy keeps the name that it was given when it started.
        for server in catalog.servers().into_iter().filter(|server| !server.is_proxy) {
            if before.server_name(server.id) != Some(&server.name) {
                wire.set_name(server.id, &server.name);
            }
        }
        catalog.removed().filter(|server| !before.is_removed(*server)).for_each(|server| wire.forget(server));
    }

    /// Shows everything that the catalog held when this was called, if its leader can be asked; whether
    /// that was news. For whoever finds something missing that another node may have made just now.
    pub fn catch_up(&self, patience: Duration) -> bool {
        let before = self.catalog.load().version;
        let deadline = task::now() + patience;
        loop {
            let lead = self.post.lead(CATALOG_GROUP).leader();
            let other = lead.filter(|leader| *leader != self.identity.server);
            let asked = other.and_then(|leader| self.ask(leader, Request::Version.encode(), patience).ok());
            if let Some(version) = self.version_led_here().or(asked.and_then(decode_word)) {
                return version > before && self.await_version(version, patience);
            }
            if task::now() > deadline {
                return false;
            }
            task::sleep(PAUSE);
        }
    }

    /// The catalog's version, if it is led from here: what is applied, shown or not.
    pub(crate) fn version_led_here(&self) -> Option<u64> {
        let row = self.catalog_shard.get(&CatalogRow::Version(0).key()).ok()??;
        match CatalogRow::from_object(&row) {
            Ok(CatalogRow::Version(version)) if self.catalog_shard.is_leader() => Some(version),
            _ => None,
        }
    }

    /// Returns once this node shows the catalog's `version` or a later one; false when that takes
    /// longer than `patience`.
    pub(crate) fn await_version(&self, version: u64, patience: Duration) -> bool {
        let deadline = task::now() + patience;
        let mut waiting = self.waiting.lock();
        while self.catalog.load().version < version {
            if self.published.wait_until(&mut waiting, deadline).timed_out() {
                return self.catalog.load().version >= version;
            }
        }
        true
    }

    /// Returns once this node has a catalog in which it stands itself; false when that takes longer
    /// than `patience`. Only a node that has just joined has none.
    pub fn await_catalog(&self, patience: Duration) -> bool {
        let deadline = task::now() + patience;
        let mut waiting = self.waiting.lock();
        while !self.shows_itself() {
            if self.published.wait_until(&mut waiting, deadline).timed_out() {
                return self.shows_itself();
            }
        }
        true
    }

    /// Whether the catalog shown here is a whole one, in which this node stands itself.
    fn shows_itself(&self) -> bool {
        let catalog = self.catalog.load();
        catalog.server(self.identity.server).is_some() && catalog.user("admin").is_some()
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
                why: "its database is not there".to_owned(),
            }
        })?;
        if let Some(known) = before.table_by_id(config.id)
            && known.config == config
            && known.db == db
            && !self.has_earlier(&known.config)
            && !self.is_put_off(known.config.id)
        {
            return Ok(Arc::clone(known));
        }
        let shards = self.open_shards(&mut config)?;
        Ok(Arc::new(TableHandle::new(db, config, shards)))
    }

    /// The rows of the catalog, databases first, so that tables find theirs. `None` while they become those of a
    /// copy, if others are shown: what is not there yet would be taken for deleted. The end of the copy is told.
    fn catalog_rows(&self) -> Result<Option<Vec<CatalogRow>>, OpenError> {
        let generation = self.catalog_shard.rows_generation();
        let snapshot = self.catalog_shard.snapshot().map_err(AdminError::from)?;
        let mut scan = snapshot.scan(&KeyRange::all(), storage::Direction::Ascending);
        let mut rows = Vec::new();
        while let Some((_, object)) = scan.next().map_err(AdminError::from)? {
            rows.push(CatalogRow::from_object(&object)?);
        }
        if !self.catalog_shard.is_current(generation) && self.shows_itself() {
            return Ok(None);
        }
        rows.sort_by_key(|row| !matches!(row, CatalogRow::Db(_)));
        Ok(Some(rows))
    }

    /// What a new cluster begins with: the user `admin` and the database `test`.
    pub(crate) fn first_rows(&self, (password, has_password): (Object, bool)) -> Result<(), AdminError> {
        let admin = User { name: Text::from_static("admin"), password, has_password };
        let test = DbConfig { id: DbId(self.new_uuid()), name: Text::from_static("test") };
        self.change(|catalog, draft| {
            // A node that starts again with less than the cluster has is not the first one.
            if catalog.user("admin").is_none() {
                draft.put(CatalogRow::User(admin.clone()));
                draft.put(CatalogRow::Db(test.clone()));
            }
            Ok(())
        })
    }

    /// Gives the server that made the cluster its row. A server that joined is described by those who let it
    /// in; the address book has where it is now.
    pub(crate) fn describe_myself(&self) -> Result<(), AdminError> {
        let own = self.identity.server;
        self.change(|present, draft| {
            if present.server(own).is_some() || present.is_removed(own) {
                return Ok(());
            }
            let catalog = ReplicaConfig { server: own, peer: self.catalog_peer, voting: true };
            draft.put(CatalogRow::Server(ServerConfig {
                id: own,
                name: self.at_start.name.clone(),
                tags: self.at_start.tags.clone(),
                cache_size_mb: self.at_start.cache_size_mb,
                addresses: self.at_start.addresses.clone(),
                catalog,
                is_proxy: false,
            }));
            Ok(())
        })
    }

    fn forget_removed(&self, group: log::GroupId) -> Result<(), AdminError> {
        if group == CATALOG_GROUP {
            tracing::error!("this server was removed from its cluster");
            return Ok(());
        }
        let open = task::lock(&self.hosted).get(&group).map(|open| (open.table, open.own));
        match open {
            // The one that was removed made room for another here, which is open.
            Some((_, own)) if self.log.group_status(group).is_ok_and(|status| status.own == own) => Ok(()),
            Some((table, _)) if table.uuid() != CATALOG_TABLE => {
                self.discard(&self.catalog(), table, group, true)?;
                self.owe_clearing(table);
                self.republish(table)
            }
            _ => Ok(()),
        }
    }

    /// Makes a new handle for a table, because a replica here has come or gone.
    pub(crate) fn republish(&self, table: TableId) -> Result<(), AdminError> {
        let _one_at_a_time = task::lock(&self.publishing);
        let mut catalog = (*self.catalog()).clone();
        let Some(handle) = catalog.table_by_id(table).cloned() else { return Ok(()) };
        let mut config = handle.config.clone();
        let shards = self.open_shards(&mut config)?;
        catalog.put_table(Arc::new(TableHandle::new(handle.db.clone(), config, shards)));
        self.catalog.store(Arc::new(catalog));
        self.index_news.tell();
        self.post.news().tell();
        Ok(())
    }
}
