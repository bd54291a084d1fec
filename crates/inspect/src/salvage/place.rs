//! The places of tables in the salvaged files.

use std::collections::{BTreeMap, BTreeSet};

use cluster::StoredCatalog;
use datum::{Object, PrimaryKey};
use storage::TableId;

use super::info;
use super::writer::{TablePlace, TableWriter};
use crate::catalog::Tables;

/// The database of tables that the catalog does not have.
const UNKNOWN_DB: &str = "salvaged";

/// Where the rows of each table go.
pub(super) struct Places {
    tables: Tables,
    /// Whether rows of tables that the catalog does not have are wanted: it is damaged. Otherwise they are left from dropped
    /// tables.
    wants_unknown: bool,
    /// The primary keys of tables that the catalog does not have.
    learned: BTreeMap<TableId, String>,
    pub left_out: BTreeSet<TableId>,
}

impl Places {
    pub(super) fn new(tables: Tables, wants_unknown: bool) -> Places {
        Places { tables, wants_unknown, learned: BTreeMap::new(), left_out: BTreeSet::new() }
    }

    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Whether the rows of the table are written.
    pub(super) fn is_wanted(&mut self, table: TableId) -> bool {
        if table == StoredCatalog::own_table() {
            return false;
        }
        let is_wanted = self.wants_unknown || self.tables.catalog.table(table).is_some();
        if !is_wanted {
            self.left_out.insert(table);
        }
        is_wanted
    }

    pub(super) fn name(&self, table: TableId) -> String {
        self.tables.name(table)
    }

    /// The field with the primary key, if it is known.
    pub(super) fn primary_key(&self, table: TableId) -> Option<&str> {
        match self.tables.catalog.table(table) {
            Some(table) => Some(&table.primary_key),
            None => self.learned.get(&table).map(String::as_str),
        }
    }

    /// Finds the field with the primary key in a row of a table that the catalog does not have.
    pub(super) fn learn(&mut self, table: TableId, key: &PrimaryKey, row: &Object) {
        if self.primary_key(table).is_some() {
            return;
        }
        let is_key = |value: &datum::Datum| PrimaryKey::encode(value).is_ok_and(|found| found == *key);
        let by_name = row.get("id").filter(|value| is_key(value)).map(|_| "id".to_owned());
        let found =
            by_name.or_else(|| row.iter().find(|(_, value)| is_key(value)).map(|(name, _)| name.to_string()));
        if let Some(field) = found {
            self.learned.insert(table, field);
        }
    }

    pub(super) fn place(&self, table: TableId) -> TablePlace {
        match self.tables.catalog.table(table) {
            Some(found) => TablePlace {
                db: self.tables.catalog.database_name(found.db).to_string(),
                table: found.name.to_string(),
            },
            None => TablePlace { db: UNKNOWN_DB.to_owned(), table: format!("table-{table}") },
        }
    }

    /// Writes the descriptions of all tables.
    pub(super) fn describe(&self, writer: &mut TableWriter) -> std::io::Result<()> {
        for table in &self.tables.catalog.tables {
            let place = self.place(table.id);
            writer.describe(&place, &info::of_table(&place.db, table))?;
        }
        for (id, primary_key) in &self.learned {
            let place = self.place(*id);
            writer.describe(&place, &info::of_unknown(&place.table, primary_key))?;
        }
        Ok(())
    }
}
