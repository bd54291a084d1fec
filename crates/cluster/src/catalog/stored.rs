//! The catalog as its stored rows have it, without a running node: for the offline check and for salvage.

use datum::{KeyRange, Object, Text};
use log::GroupId;
use storage::TableId;

use super::row::CatalogRow;
use crate::config::{CATALOG_TABLE, DbConfig, DbId, ServerConfig, ServerId, TableConfig};
use crate::error::OpenError;
use crate::routing::shard_range;

/// The databases, tables and servers of a catalog.
#[derive(Clone, Debug, Default)]
pub struct StoredCatalog {
    pub databases: Vec<DbConfig>,
    pub tables: Vec<TableConfig>,
    pub servers: Vec<ServerConfig>,
    /// The permanently removed servers.
    pub removed: Vec<ServerId>,
}

/// A shard of a table: its group, and its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredShard {
    pub group: GroupId,
    pub range: KeyRange,
}

impl StoredCatalog {
    /// The id of the catalog's own table.
    #[must_use]
    pub fn own_table() -> TableId {
        TableId::from_uuid(CATALOG_TABLE)
    }

    /// Adds a row of the catalog. Fails if it is none, with an error that names it.
    pub fn add(&mut self, row: &Object) -> Result<(), OpenError> {
        match CatalogRow::from_object(row)? {
            CatalogRow::Db(db) => self.databases.push(db),
            CatalogRow::Table(table) => self.tables.push(table),
            CatalogRow::Server(server) => self.servers.push(server),
            CatalogRow::Removed(server) => self.removed.push(server.id),
            _ => {}
        }
        Ok(())
    }

    #[must_use]
    pub fn table(&self, id: TableId) -> Option<&TableConfig> {
        self.tables.iter().find(|table| table.id == id)
    }

    /// Whether the server with this id is in the catalog, or was.
    #[must_use]
    pub fn has_server(&self, id: ServerId) -> bool {
        self.servers.iter().any(|server| server.id == id) || self.removed.contains(&id)
    }

    /// The name of a database; its id if the catalog does not have it.
    #[must_use]
    pub fn database_name(&self, id: DbId) -> Text {
        let found = self.databases.iter().find(|db| db.id == id);
        found.map_or_else(|| id.to_string().into(), |db| db.name.clone())
    }

    /// The shards of a table, in key order.
    #[must_use]
    pub fn shards_of(table: &TableConfig) -> Vec<StoredShard> {
        let shard =
            |i: usize| StoredShard { group: table.shards[i].group, range: shard_range(&table.shards, i) };
        (0..table.shards.len()).map(shard).collect()
    }
}
