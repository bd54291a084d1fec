//! Changes to databases and tables. Each is one entry of the catalog's log.

use std::sync::Arc;

use datum::{PrimaryKey, Text};
use log::Durability;
use storage::TableId;

use super::client::CatalogClient;
use super::draft::Draft;
use super::row::{CatalogRow, grant_key};
use super::shard_placer::{DesiredShards, ShardPlacer};
use super::snapshot::{Catalog, Database, find_db, find_table};
use crate::config::boundaries::even_boundaries;
use crate::config::{
    DbConfig, DbId, Ids, Scope, ShardHistory, TableCompression, TableConfig, TableIndexes, WriteAcks,
};
use crate::error::AdminError;
use crate::routing::TableHandle;

/// The settings of a new table.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// Its id, which must never have been used; `None` generates one.
    pub id: Option<TableId>,
    /// The field that holds the primary key.
    pub primary_key: Text,
    /// The default durability of its writes.
    pub durability: Durability,
    /// How many replicas must hold a write.
    pub write_acks: WriteAcks,
    pub compression: TableCompression,
    /// Its shards and the placement of their replicas.
    pub shards: DesiredShards,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            id: None,
            primary_key: Text::from_static("id"),
            durability: Durability::Hard,
            write_acks: WriteAcks::Majority,
            compression: TableCompression::Default,
            shards: DesiredShards::count(1),
        }
    }
}

/// Creates, renames and drops databases and tables.
pub struct Schema {
    catalog: Arc<CatalogClient>,
    placer: Arc<ShardPlacer>,
    ids: Ids,
}

impl Schema {
    pub(crate) fn new(catalog: Arc<CatalogClient>, placer: Arc<ShardPlacer>, ids: Ids) -> Schema {
        Schema { catalog, placer, ids }
    }

    /// Creates a database. Fails if the name is taken.
    pub fn create_db(&self, name: &str) -> Result<DbConfig, AdminError> {
        self.create_db_as(DbId(self.ids.new_uuid()), name)
    }

    /// As [`Schema::create_db`], with an id that must never have been used.
    pub fn create_db_as(&self, id: DbId, name: &str) -> Result<DbConfig, AdminError> {
        let db = DbConfig { id, name: name.into() };
        self.catalog.administer(|catalog, draft| {
            if catalog.database(name).is_some() {
                return Err(AdminError::DbExists(name.into()));
            }
            draft.put(CatalogRow::Db(db.clone()));
            Ok(db.clone())
        })
    }

    /// Renames a database. Fails if it does not exist, or if the new name is taken.
    pub fn rename_db(&self, id: DbId, new_name: &str) -> Result<(), AdminError> {
        self.catalog.administer(|catalog, draft| {
            let missing = || AdminError::DbMissing(id.0.to_string().into());
            let mut db = catalog.database_by_id(id).map(|db| db.config.clone()).ok_or_else(missing)?;
            if *db.name != *new_name && catalog.database(new_name).is_some() {
                return Err(AdminError::DbRenameTaken { from: db.name, to: new_name.into() });
            }
            db.name = new_name.into();
            draft.put(CatalogRow::Db(db));
            Ok(())
        })
    }

    /// Drops a database with all its tables; returns it and their configurations.
    pub fn drop_db(&self, name: &str) -> Result<(DbConfig, Vec<TableConfig>), AdminError> {
        self.drop_db_if(name, |_, _| true)
    }

    /// As [`Schema::drop_db`], but fails with [`AdminError::Forbidden`] if `permits` refuses the database, given the
    /// version of the catalog that the drop is based on.
    pub fn drop_db_if(
        &self,
        name: &str,
        mut permits: impl FnMut(&Catalog, &Database) -> bool,
    ) -> Result<(DbConfig, Vec<TableConfig>), AdminError> {
        self.catalog.administer(|catalog, draft| {
            let found = catalog.database(name).ok_or_else(|| AdminError::DbMissing(name.into()))?;
            if !permits(catalog, found) {
                return Err(AdminError::Forbidden);
            }
            let db = found.config.clone();
            let tables: Vec<TableConfig> =
                found.tables().into_iter().map(|table| table.config.clone()).collect();
            for table in &tables {
                draft.delete(CatalogRow::Table(table.clone()).key());
            }
            draft.delete(CatalogRow::Db(db.clone()).key());
            drop_grants(catalog, draft, |scope| match scope {
                Scope::Global => false,
                Scope::Database(id) | Scope::Table(id, _) => id == db.id,
            });
            Ok((db, tables))
        })
    }

    /// Creates a table. Returns once this node shows it.
    pub fn create_table(
        &self,
        db: &str,
        name: &str,
        options: TableOptions,
    ) -> Result<TableConfig, AdminError> {
        self.create_table_if(db, name, options, |_, _| true)
    }

    /// As [`Schema::create_table`], but fails with [`AdminError::Forbidden`] if `permits` refuses the database, given
    /// the version of the catalog that the creation is based on.
    pub fn create_table_if(
        &self,
        db: &str,
        name: &str,
        options: TableOptions,
        mut permits: impl FnMut(&Catalog, &DbConfig) -> bool,
    ) -> Result<TableConfig, AdminError> {
        let id = options.id.unwrap_or_else(|| TableId::from_uuid(self.ids.new_uuid()));
        self.catalog.administer(|catalog, draft| {
            let db = find_db(catalog, db)?;
            if !permits(catalog, &db) {
                return Err(AdminError::Forbidden);
            }
            if catalog.table(&db.name, name).is_some() {
                return Err(AdminError::TableExists { db: db.name, table: name.into() });
            }
            let places = self.placer.places(catalog, &options.shards, None)?;
            let config = TableConfig {
                id,
                db: db.id,
                name: name.into(),
                primary_key: options.primary_key.clone(),
                durability: options.durability,
                write_acks: options.write_acks,
                compression: options.compression,
                indexes: TableIndexes::default(),
                write_hook: None,
                shards: self.placer.founded(draft, even_boundaries(places.len()), &places),
                history: ShardHistory::default(),
            };
            draft.put(CatalogRow::Table(config.clone()));
            Ok(config)
        })
    }

    /// Drops a table; returns its configuration.
    pub fn drop_table(&self, db: &str, name: &str) -> Result<TableConfig, AdminError> {
        self.drop_table_if(db, name, |_, _| true)
    }

    /// As [`Schema::drop_table`], but fails with [`AdminError::Forbidden`] if `permits` refuses the table, given the
    /// version of the catalog that the drop is based on.
    pub fn drop_table_if(
        &self,
        db: &str,
        name: &str,
        mut permits: impl FnMut(&Catalog, &TableHandle) -> bool,
    ) -> Result<TableConfig, AdminError> {
        self.catalog.administer(|catalog, draft| {
            let table = find_table(catalog, db, name)?;
            if !permits(catalog, table) {
                return Err(AdminError::Forbidden);
            }
            let config = table.config.clone();
            draft.delete(CatalogRow::Table(config.clone()).key());
            drop_grants(
                catalog,
                draft,
                |scope| matches!(scope, Scope::Table(_, table) if table == config.id),
            );
            Ok(config)
        })
    }
}

/// Deletes the grants at the scopes for which `is_dropped` holds.
fn drop_grants(catalog: &Catalog, draft: &mut Draft, is_dropped: impl Fn(Scope) -> bool) {
    let dropped = catalog.grants().iter().filter(|grant| is_dropped(grant.scope));
    let keys: Vec<PrimaryKey> = dropped.map(|grant| grant_key(&grant.user, grant.scope)).collect();
    keys.into_iter().for_each(|key| draft.delete(key));
}
