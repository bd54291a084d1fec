//! A draft: rows of the catalog that one change writes together.

use datum::{Object, PrimaryKey};
use log::GroupId;

use super::row::CatalogRow;
use super::snapshot::Catalog;
use crate::config::ServerId;
use crate::error::AdminError;

/// Rows of the catalog that one change writes together.
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

    /// Adds a row. Every change of a table's replicas and of the catalog's voters passes here, so this prunes the shard
    /// history of a table, and takes the vote from a proxy.
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

    /// A new group number.
    pub(crate) fn new_group(&mut self) -> GroupId {
        self.group_next += 1;
        GroupId(self.group_next - 1)
    }

    /// The rows in their stored form. Fails if one of them could not be read back unchanged: no node could read the
    /// catalog any more, so no node could correct it either.
    pub(super) fn into_rows(mut self) -> Result<Vec<(PrimaryKey, Option<Object>)>, AdminError> {
        if self.group_next != self.group_first {
            self.put.push(CatalogRow::Groups(self.group_next));
        }
        let puts = self.put.iter().map(|row| Ok((row.key(), Some(checked_object(row)?))));
        puts.chain(self.delete.into_iter().map(|key| Ok((key, None)))).collect()
    }

    /// A server that would get its first replica of a table but must not: a proxy, or a server other than `own` that is
    /// not in the catalog, for example because it was removed after the change was planned.
    pub(super) fn ineligible_server(&self, catalog: &Catalog, own: ServerId) -> Option<ServerId> {
        let tables = self.put.iter().filter_map(|row| match row {
            CatalogRow::Table(table) => Some(table),
            _ => None,
        });
        tables.into_iter().find_map(|table| {
            let before = catalog.table_by_id(table.id).map(|handle| &handle.config);
            let had_replica = |server| {
                before.is_some_and(|old| old.shards.iter().any(|shard| shard.replica_on(server).is_some()))
            };
            let replicas = table.shards.iter().flat_map(|shard| shard.replicas.iter().chain(&shard.leaving));
            let mut servers = replicas.map(|replica| replica.server);
            let is_ineligible = |server: &ServerId| match catalog.server(*server) {
                Some(known) => known.is_proxy,
                None => *server != own,
            };
            servers.find(|server| is_ineligible(server) && !had_replica(*server))
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.delete.is_empty()
    }
}

/// The stored form of a row, checked: it must be read back as the same row.
fn checked_object(row: &CatalogRow) -> Result<Object, AdminError> {
    let object = row.to_object();
    match CatalogRow::from_object(&object) {
        Ok(read) if read == *row => Ok(object),
        Ok(_) => {
            let key = row.key().decode().to_json_string();
            Err(AdminError::Refused(format!("catalog row {key} could not be read back unchanged")))
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
    fn a_row_that_could_not_be_read_back_is_refused() {
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
