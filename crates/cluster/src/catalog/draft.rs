//! Rows of the catalog that are to be written together.

use datum::{Object, PrimaryKey};
use log::GroupId;

use super::row::CatalogRow;
use super::snapshot::Catalog;
use crate::config::ServerId;
use crate::error::AdminError;

/// Rows of the catalog that are to be written together.
pub(crate) struct Draft {
    put: Vec<CatalogRow>,
    delete: Vec<PrimaryKey>,
    group_next: u64,
    group_first: u64,
}

impl Draft {
    pub(crate) fn of(catalog: &Catalog) -> Draft {
        let group_next = catalog.group_next;
        Draft { put: Vec::new(), delete: Vec::new(), group_next, group_first: group_next }
    }

    /// Adds a row. What a table keeps of its shards before is settled first: every change of its replicas
    /// comes by here. So does every vote on the catalog, which a proxy has none of.
    pub(crate) fn put(&mut self, mut row: CatalogRow) {
        match &mut row {
            CatalogRow::Table(table) => table.prune_history(),
            CatalogRow::Server(server) => server.catalog.voting &= !server.is_proxy,
            _ => {}
        }
        self.put.push(row);
    }

    pub(crate) fn delete(&mut self, key: PrimaryKey) {
        self.delete.push(key);
    }

    /// A group number that was never used.
    pub(crate) fn new_group(&mut self) -> GroupId {
        self.group_next += 1;
        GroupId(self.group_next - 1)
    }

    /// The rows as they are stored. Fails if one would not be read as what it is: no node could read the
    /// catalog any more, nor change what is wrong with it.
    pub(super) fn into_rows(mut self) -> Result<Vec<(PrimaryKey, Option<Object>)>, AdminError> {
        if self.group_next != self.group_first {
            self.put.push(CatalogRow::Groups(self.group_next));
        }
        let puts = self.put.iter().map(|row| Ok((row.key(), Some(readable(row)?))));
        puts.chain(self.delete.into_iter().map(|key| Ok((key, None)))).collect()
    }

    /// A server that is to get a replica and is none of those that hold any: a proxy, or one other than `own` that was
    /// removed since whoever asks for that has looked.
    pub(super) fn ineligible_server(&self, catalog: &Catalog, own: ServerId) -> Option<ServerId> {
        let tables = self.put.iter().filter_map(|row| match row {
            CatalogRow::Table(table) => Some(table),
            _ => None,
        });
        tables.into_iter().find_map(|table| {
            let before = catalog.table_by_id(table.id).map(|handle| &handle.config);
            let had = |server| {
                before.is_some_and(|old| old.shards.iter().any(|shard| shard.replica_on(server).is_some()))
            };
            let replicas = table.shards.iter().flat_map(|shard| shard.replicas.iter().chain(&shard.leaving));
            let mut named = replicas.map(|replica| replica.server);
            let is_stranger = |server: &ServerId| match catalog.server(*server) {
                Some(known) => known.is_proxy,
                None => *server != own,
            };
            named.find(|server| is_stranger(server) && !had(*server))
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.delete.is_empty()
    }
}

/// A row as it is stored, if that is read as the same row.
fn readable(row: &CatalogRow) -> Result<Object, AdminError> {
    let object = row.to_object();
    match CatalogRow::from_object(&object) {
        Ok(read) if read == *row => Ok(object),
        Ok(_) => {
            let key = row.key().decode().to_json_string();
            Err(AdminError::Refused(format!("catalog row {key} would not be read as what it is")))
        }
        Err(error) => Err(AdminError::Refused(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture::{shard, table};

    fn rows_of(row: CatalogRow) -> Result<Vec<(PrimaryKey, Option<Object>)>, AdminError> {
        let mut draft = Draft::of(&Catalog::default());
        draft.put(row);
        draft.into_rows()
    }

    #[test]
    fn a_row_that_could_not_be_read_is_not_proposed() {
        assert!(rows_of(CatalogRow::Heartbeat(10)).is_ok());
        assert!(rows_of(CatalogRow::Table(table(vec![shard(3, b"", &[1, 2])]))).is_ok());
        for row in [
            CatalogRow::Heartbeat(1 << 53),
            CatalogRow::Groups(u64::MAX),
            CatalogRow::Table(table(Vec::new())),
        ] {
            let refused = rows_of(row).unwrap_err().to_string();
            assert!(refused.starts_with("the catalog could not be written: catalog row"), "{refused}");
        }
    }
}
