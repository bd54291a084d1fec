//! The tables of a data directory, from the rows of its catalog.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use cluster::{StoredCatalog, TableConfig};
use datum::{PrimaryKey, row};
use log::GroupId;
use storage::{CompressedEngine, TableId, row_place};

use crate::walk::Found;

/// The rows of the catalog's table.
#[derive(Default)]
pub struct CatalogRows {
    rows: BTreeMap<PrimaryKey, Bytes>,
    /// Whether rows may be missing.
    pub is_damaged: bool,
}

/// Names and settings of the tables.
#[derive(Debug, Default)]
pub struct Tables {
    pub catalog: StoredCatalog,
    names: BTreeMap<TableId, String>,
}

impl CatalogRows {
    /// Takes a pair of the space of rows, if it is a row of the catalog and undamaged. The check of all rows reports damage.
    pub fn take(&mut self, found: Found<'_>, rows: &CompressedEngine) {
        let (Found::Pair { key, value } | Found::Doubtful { key, value }) = found else {
            self.is_damaged = true;
            return;
        };
        let Some((table, key_of_row)) = row_place(key) else { return };
        if table != StoredCatalog::own_table() {
            return;
        }
        match rows.decode(key, Bytes::copy_from_slice(value)) {
            Ok(Some(bytes)) if row::decode(bytes.clone()).is_ok() => self.set(key_of_row, Some(bytes)),
            _ => self.is_damaged = true,
        }
    }

    /// Replaces a row by a later one.
    pub fn set(&mut self, key: PrimaryKey, row: Option<Bytes>) {
        match row {
            Some(row) => drop(self.rows.insert(key, row)),
            None => drop(self.rows.remove(&key)),
        }
    }

    /// The tables. Calls `damaged` with the key of each row that is none of the catalog, and the reason.
    #[must_use]
    pub fn tables(&self, damaged: &mut dyn FnMut(&PrimaryKey, String)) -> Tables {
        let mut tables = Tables::default();
        for (key, bytes) in &self.rows {
            match row::decode(bytes.clone()) {
                Ok(object) => {
                    if let Err(cause) = tables.catalog.add(&object) {
                        damaged(key, cause.to_string());
                    }
                }
                Err(cause) => damaged(key, cause.to_string()),
            }
        }
        tables.names =
            tables.catalog.tables.iter().map(|table| (table.id, tables.full_name(table))).collect();
        tables
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl Tables {
    fn full_name(&self, table: &TableConfig) -> String {
        format!("{}.{}", self.catalog.database_name(table.db), table.name)
    }

    /// `database.name`; `the catalog` for the catalog itself, and the id of a table that the catalog does not have.
    #[must_use]
    pub fn name(&self, id: TableId) -> String {
        match self.names.get(&id) {
            Some(name) => name.clone(),
            None if id == StoredCatalog::own_table() => "the catalog".to_owned(),
            None => format!("table {id}"),
        }
    }

    /// The groups that order or ordered writes of a table, those before a reshard included.
    #[must_use]
    pub fn groups_of(table: &TableConfig) -> BTreeSet<GroupId> {
        let shards = table.shards.iter().map(|shard| shard.group);
        let sealed = table.history.sealed.iter().chain(&table.history.past).map(|sealed| sealed.group);
        shards.chain(sealed).collect()
    }

    /// The table whose writes a group orders.
    #[must_use]
    pub fn table_of(&self, group: GroupId) -> Option<TableId> {
        if group == GroupId(0) {
            return Some(StoredCatalog::own_table());
        }
        let table = self.catalog.tables.iter().find(|table| Tables::groups_of(table).contains(&group));
        table.map(|table| table.id)
    }
}
