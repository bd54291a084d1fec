//! The tables that an answer is made of while it is fetched, so that the right to read them can be asked for again.

use cluster::DbId;
use parking_lot::Mutex;
use storage::TableId;

/// The tables that an answer is made of, and which catalog allowed to read them.
#[derive(Default)]
pub(crate) struct TablesRead(Mutex<CheckedTables>);

#[derive(Default)]
struct CheckedTables {
    tables: Vec<(DbId, TableId)>,
    version: u64,
}

impl TablesRead {
    /// One more, which may be read.
    pub fn add(&self, db: DbId, table: TableId) {
        let mut checked = self.0.lock();
        if !checked.tables.contains(&(db, table)) {
            checked.tables.push((db, table));
        }
    }

    /// Those that must be looked at because the catalog has another version now than when this was asked last.
    pub fn to_check(&self, version: u64) -> Vec<(DbId, TableId)> {
        let mut checked = self.0.lock();
        let is_known = std::mem::replace(&mut checked.version, version) == version;
        if is_known { Vec::new() } else { checked.tables.clone() }
    }
}
