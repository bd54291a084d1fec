//! The tables whose rows are in a result: read permissions are checked again while the client fetches it.

use cluster::DbId;
use parking_lot::Mutex;
use storage::TableId;

/// The tables, and the version of the catalog by which their permissions were last checked.
#[derive(Default)]
pub(crate) struct TablesRead(Mutex<CheckedTables>);

#[derive(Default)]
struct CheckedTables {
    tables: Vec<(DbId, TableId)>,
    version: u64,
}

impl TablesRead {
    /// Adds a table that may be read.
    pub fn add(&self, db: DbId, table: TableId) {
        let mut checked = self.0.lock();
        if !checked.tables.contains(&(db, table)) {
            checked.tables.push((db, table));
        }
    }

    /// The tables to check again because the catalog has changed since the last call.
    pub fn to_check(&self, version: u64) -> Vec<(DbId, TableId)> {
        let mut checked = self.0.lock();
        let is_known = std::mem::replace(&mut checked.version, version) == version;
        if is_known { Vec::new() } else { checked.tables.clone() }
    }
}
