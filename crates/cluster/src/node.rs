//! A node: its engine, its log, the catalog in group zero and every shard it holds.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use datum::{KeyRange, Object, PrimaryKey, Text};
use engine::{Batch, Engine};
use io::{Clock, Files, Random};
use log::{Durability, GroupId, Log};
use parking_lot::Mutex;
use shard::{Decision, Replicas, Shard};
use storage::TableId;
use uuid::Uuid;

use crate::catalog_row::CatalogRow;
use crate::news::News;
use crate::{
    AdminError, Catalog, DbConfig, DbId, Identity, OpenError, ServerId, TableConfig, TableHandle, User,
};

/// The catalog's own group and table.
const CATALOG_GROUP: GroupId = GroupId(0);
const CATALOG_TABLE: Uuid = Uuid::nil();

/// What a node is opened with.
pub struct NodeOptions {
    /// Its data directory, which exists and is locked by the caller.
    pub dir: PathBuf,
    /// The name shown in `server_config`.
    pub server_name: Text,
    /// The tags shown there.
    pub server_tags: Vec<Text>,
    /// Every shard of the engine, as the log applies to them.
    pub replicas: Arc<Replicas>,
    /// The log of all groups.
    pub log: Arc<dyn Log>,
    /// The clock queries see.
    pub clock: Arc<dyn Clock>,
    /// The files of the data directory.
    pub files: Arc<dyn Files>,
    /// Where identities come from.
    pub random: Arc<dyn Random>,
    /// The password record of a new `admin`, and whether its password is not empty.
    pub admin_password: (Object, bool),
}

/// One server of the cluster and everything it holds.
pub struct Node {
    identity: Identity,
    name: Text,
    tags: Vec<Text>,
    replicas: Arc<Replicas>,
    pub(crate) log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    catalog_shard: Arc<Shard>,
    catalog: ArcSwap<Catalog>,
    /// Held while the catalog changes: one change at a time.
    pub(crate) changing: Mutex<()>,
    pub(crate) index_news: Arc<News>,
}

impl Node {
    /// Opens the node: its identity (made in a new directory), the catalog, every shard, and
    /// finishes the removal of tables dropped before a crash.
    ///
    /// Blocks while the log is replayed. Fails when anything stored cannot be read.
    pub fn open(options: NodeOptions) -> Result<Arc<Node>, OpenError> {
        let random = options.random.clone();
        let identity = match Identity::load(&*options.files, &options.dir)? {
            Some(identity) => identity,
            None => {
                let identity =
                    Identity { server: ServerId(random_uuid(&*random)), cluster: random_uuid(&*random) };
                identity.store(&*options.files, &options.dir)?;
                identity
            }
        };
        let catalog_shard = Shard::open(
            &options.replicas,
            options.log.clone(),
            TableId::from_uuid(CATALOG_TABLE),
            CATALOG_GROUP,
            KeyRange::all(),
        )
        .map_err(AdminError::from)?;
        let node = Node {
            identity,
            name: options.server_name,
            tags: options.server_tags,
            replicas: options.replicas,
            log: options.log,
            clock: options.clock,
            random,
            catalog_shard,
            catalog: ArcSwap::from_pointee(Catalog::default()),
            changing: Mutex::new(()),
            index_news: Arc::default(),
        };
        node.load_catalog(options.admin_password)?;
        Ok(Arc::new(node))
    }

    /// The catalog at this moment.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// The catalog at this moment, without touching its reference count; hold it briefly.
    #[must_use]
    pub fn catalog_guard(&self) -> arc_swap::Guard<Arc<Catalog>> {
        self.catalog.load()
    }

    /// Returns once the change of the catalog that is under way, if there is one, is published or
    /// given up. Whoever was sent away by a retired shard waits here before asking again.
    pub fn await_change(&self) {
        drop(self.changing.lock());
    }

    /// Which server this is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The server's name.
    #[must_use]
    pub fn name(&self) -> &Text {
        &self.name
    }

    /// The server's tags.
    #[must_use]
    pub fn tags(&self) -> &[Text] {
        &self.tags
    }

    /// The clock queries see.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Where a query's chance comes from.
    #[must_use]
    pub fn random(&self) -> &Arc<dyn Random> {
        &self.random
    }

    /// The engine under all tables, for its figures.
    #[must_use]
    pub fn engine(&self) -> &Arc<dyn Engine> {
        self.replicas.engine()
    }

    /// The log of all groups, for its figures.
    #[must_use]
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    /// All shards of the engine, for their figures.
    #[must_use]
    pub fn replicas(&self) -> &Arc<Replicas> {
        &self.replicas
    }

    /// A random UUID of version 4.
    #[must_use]
    pub fn new_uuid(&self) -> Uuid {
        random_uuid(&*self.random)
    }

    fn load_catalog(&self, admin_password: (Object, bool)) -> Result<(), OpenError> {
        let rows = self.catalog_rows()?;
        let mut catalog = Catalog::default();
        catalog.group_next = CATALOG_GROUP.0 + 1;
        let mut unfinished = Vec::new();
        for row in rows {
            match row {
                CatalogRow::Db(db) => catalog.put_database(db),
                CatalogRow::Groups(next) => catalog.group_next = next,
                CatalogRow::User(user) => catalog.put_user(user),
                CatalogRow::Grant(grant) => catalog.put_grant(grant),
                CatalogRow::Table(config) => catalog.put_table(self.open_table(&catalog, config)?),
                CatalogRow::Dropped { .. } => unfinished.push(row),
            }
        }
        self.catalog.store(Arc::new(catalog));
        if self.catalog().user("admin").is_none() {
            self.first_rows(admin_password)?;
        }
        for row in unfinished {
            self.finish_drop(&row)?;
        }
        self.sweep()?;
        Ok(self.sweep_indexes()?)
    }

    /// Removes rows of tables that the catalog does not know: their removal was noted as done
    /// and then lost with the engine's memory.
    fn sweep(&self) -> Result<(), AdminError> {
        let catalog = self.catalog();
        let mut batch = Batch::new();
        for table in storage::tables_present(&self.engine().snapshot()?)? {
            if table.uuid() != CATALOG_TABLE && catalog.table_by_id(table).is_none() {
                storage::drop_table(&mut batch, table);
            }
        }
        Ok(self.engine().write(batch)?)
    }

    /// The rows of the catalog, databases first, so that tables find theirs.
    fn catalog_rows(&self) -> Result<Vec<CatalogRow>, OpenError> {
        let snapshot = self.catalog_shard.snapshot().map_err(AdminError::from)?;
        let mut scan = snapshot.scan(&KeyRange::all(), storage::Direction::Ascending);
        let mut rows = Vec::new();
        while let Some((_, object)) = scan.next().map_err(AdminError::from)? {
            rows.push(CatalogRow::from_object(&object)?);
        }
        rows.sort_by_key(|row| !matches!(row, CatalogRow::Db(_)));
        Ok(rows)
    }

    /// What a new cluster begins with: the user `admin` and the database `test`.
    fn first_rows(&self, (password, has_password): (Object, bool)) -> Result<(), AdminError> {
        let admin = User { name: Text::from_static("admin"), password, has_password };
        let test = DbConfig { id: DbId(self.new_uuid()), name: Text::from_static("test") };
        let mut catalog = (*self.catalog()).clone();
        catalog.put_user(admin.clone());
        catalog.put_database(test.clone());
        let groups = CatalogRow::Groups(catalog.group_next);
        self.commit(&[CatalogRow::User(admin), CatalogRow::Db(test), groups], &[], catalog)
    }

    pub(crate) fn open_table(
        &self,
        catalog: &Catalog,
        config: TableConfig,
    ) -> Result<Arc<TableHandle>, OpenError> {
        let db = catalog.database_by_id(config.db).map(|db| db.config.clone()).ok_or_else(|| {
            OpenError::CatalogRow {
                key: config.name.to_string(),
                why: "its database is not there".to_owned(),
            }
        })?;
        let shards = self.open_shards(&config)?;
        Ok(Arc::new(TableHandle::new(db, config, shards)))
    }

    pub(crate) fn open_shards(&self, config: &TableConfig) -> Result<Vec<Arc<Shard>>, AdminError> {
        let open = |(i, shard): (usize, &crate::ShardConfig)| {
            let range = crate::router::shard_range(&config.shards, i);
            let shard = Shard::open(&self.replicas, self.log.clone(), config.id, shard.group, range)?;
            shard.set_indexes(config.indexes.defs());
            Ok(shard)
        };
        config.shards.iter().enumerate().map(open).collect()
    }

    /// Writes catalog rows in one entry, waits until they are on disk, and publishes `catalog`.
    pub(crate) fn commit(
        &self,
        put: &[CatalogRow],
        delete: &[PrimaryKey],
        catalog: Catalog,
    ) -> Result<(), AdminError> {
        let puts = put.iter().map(|row| (row.key(), Decision::Put(row.to_object())));
        let deletes = delete.iter().map(|key| (key.clone(), Decision::Delete));
        let ticket = self.catalog_shard.write_rows(puts.chain(deletes).collect(), Durability::Hard);
        ticket.wait()?;
        self.catalog.store(Arc::new(catalog));
        Ok(())
    }
}

fn random_uuid(random: &dyn Random) -> Uuid {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}
