//! Changes to databases and tables. Each is one entry of the catalog's log.

use std::sync::Arc;

use datum::{Bytes, KeyBound, KeyRange, PrimaryKey, Text};
use engine::Batch;
use log::{Durability, GroupId, LogError};
use reql::StoredFunc;
use shard::Shard;
use storage::{Part, Table, TableId};

use crate::catalog_row::CatalogRow;
use crate::indexes::TableIndexes;
use crate::placement::{SHARDS_MAX, even_starts};
use crate::{
    AdminError, Catalog, DbConfig, DbId, Node, Scope, ShardConfig, TableConfig, TableHandle, WriteAcks,
};

/// What a new table may be given.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// The field that holds the primary key.
    pub primary_key: Text,
    /// What its writes wait for.
    pub durability: Durability,
    /// How many replicas must hold a write.
    pub write_acks: WriteAcks,
    /// Into how many key ranges it is divided, at least 1.
    pub shards: usize,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            primary_key: Text::from_static("id"),
            durability: Durability::Hard,
            write_acks: WriteAcks::Majority,
            shards: 1,
        }
    }
}

/// A change to a table's configuration; `None` leaves a setting as it is.
#[derive(Clone, Debug, Default)]
pub struct TableChange {
    /// Its name.
    pub name: Option<Text>,
    /// What its writes wait for.
    pub durability: Option<Durability>,
    /// How many replicas must hold a write.
    pub write_acks: Option<WriteAcks>,
    /// Into how many key ranges it is divided.
    pub shards: Option<usize>,
    /// Its write hook; `Some(None)` takes it away.
    pub write_hook: Option<Option<StoredFunc>>,
}

impl Node {
    /// Creates a database. Fails when the name is taken.
    pub fn create_db(&self, name: &str) -> Result<DbConfig, AdminError> {
        let _one_at_a_time = self.changing.lock();
        let mut catalog = (*self.catalog()).clone();
        if catalog.database(name).is_some() {
            return Err(AdminError::DbExists(name.into()));
        }
        let db = DbConfig { id: DbId(self.new_uuid()), name: name.into() };
        catalog.put_database(db.clone());
        self.commit(&[CatalogRow::Db(db.clone())], &[], catalog)?;
        Ok(db)
    }

    /// Renames a database. Fails when it is not there or the new name is taken.
    pub fn rename_db(&self, name: &str, new_name: &str) -> Result<(), AdminError> {
        let _one_at_a_time = self.changing.lock();
        let mut catalog = (*self.catalog()).clone();
        let mut db = find_db(&catalog, name)?;
        if name != new_name && catalog.database(new_name).is_some() {
            return Err(AdminError::DbExists(new_name.into()));
        }
        db.name = new_name.into();
        catalog.put_database(db.clone());
        self.commit(&[CatalogRow::Db(db)], &[], catalog)
    }

    /// Drops a database with all its tables; returns it and their configurations.
    pub fn drop_db(&self, name: &str) -> Result<(DbConfig, Vec<TableConfig>), AdminError> {
        let _one_at_a_time = self.changing.lock();
        let mut catalog = (*self.catalog()).clone();
        let db = find_db(&catalog, name)?;
        let handles: Vec<_> =
            catalog.database(name).into_iter().flat_map(|db| db.tables()).cloned().collect();
        let tables: Vec<TableConfig> = handles.iter().map(|table| table.config.clone()).collect();
        catalog.remove_database(name);
        let drops: Vec<CatalogRow> = tables.iter().map(dropped).collect();
        let mut gone: Vec<PrimaryKey> =
            tables.iter().map(|table| CatalogRow::Table(table.clone()).key()).collect();
        gone.push(CatalogRow::Db(db.clone()).key());
        gone.extend(drop_grants(&mut catalog, |scope| match scope {
            Scope::Global => false,
            Scope::Database(id) | Scope::Table(id, _) => id == db.id,
        }));
        self.commit(&drops, &gone, catalog)?;
        handles.iter().for_each(retire);
        for row in &drops {
            self.finish_drop(row)?;
        }
        Ok((db, tables))
    }

    /// Creates a table and returns when it can be used.
    pub fn create_table(
        &self,
        db: &str,
        name: &str,
        options: TableOptions,
    ) -> Result<TableConfig, AdminError> {
        let _one_at_a_time = self.changing.lock();
        let mut catalog = (*self.catalog()).clone();
        let db = find_db(&catalog, db)?;
        if catalog.table(&db.name, name).is_some() {
            return Err(AdminError::TableExists { db: db.name, table: name.into() });
        }
        let shards = self.new_shards(&mut catalog, even_starts_checked(options.shards)?);
        let config = TableConfig {
            id: TableId::from_uuid(self.new_uuid()),
            db: db.id,
            name: name.into(),
            primary_key: options.primary_key,
            durability: options.durability,
            write_acks: options.write_acks,
            indexes: TableIndexes::default(),
            write_hook: None,
            shards,
        };
        let handle = Arc::new(TableHandle::new(db, config.clone(), self.open_shards(&config)?));
        catalog.put_table(handle);
        let groups = CatalogRow::Groups(catalog.group_next);
        self.commit(&[CatalogRow::Table(config.clone()), groups], &[], catalog)?;
        Ok(config)
    }

    /// Drops a table; returns what it was.
    pub fn drop_table(&self, db: &str, name: &str) -> Result<TableConfig, AdminError> {
        let _one_at_a_time = self.changing.lock();
        let mut catalog = (*self.catalog()).clone();
        let handle = find_table(&catalog, db, name)?;
        let config = handle.config.clone();
        catalog.remove_table(config.id);
        let row = dropped(&config);
        let mut gone = vec![CatalogRow::Table(config.clone()).key()];
        gone.extend(drop_grants(
            &mut catalog,
            |scope| matches!(scope, Scope::Table(_, table) if table == config.id),
        ));
        self.commit(std::slice::from_ref(&row), &gone, catalog)?;
        retire(&handle);
        self.finish_drop(&row)?;
        Ok(config)
    }

    /// Changes a table's settings; returns the configuration before and after.
    pub fn change_table(
        &self,
        id: TableId,
        change: &TableChange,
    ) -> Result<(TableConfig, TableConfig), AdminError> {
        let _one_at_a_time = self.changing.lock();
        let catalog = (*self.catalog()).clone();
        let handle = catalog.table_by_id(id).cloned().ok_or_else(|| AdminError::TableMissing {
            db: Text::new(),
            table: id.uuid().to_string().into(),
        })?;
        let before = handle.config.clone();
        let mut after = before.clone();
        if let Some(name) = &change.name {
            if *name != before.name && catalog.table(&handle.db.name, name).is_some() {
                return Err(AdminError::RenameTaken { from: before.name, to: name.clone() });
            }
            after.name = name.clone();
        }
        after.durability = change.durability.unwrap_or(before.durability);
        after.write_acks = change.write_acks.unwrap_or(before.write_acks);
        if let Some(hook) = &change.write_hook {
            after.write_hook.clone_from(hook);
        }
        match change.shards {
            Some(shards) if shards != before.shards.len() => {
                let starts = self.learned_starts(&handle, shards)?;
                self.divide(catalog, &handle, after, starts).map(|after| (before, after))
            }
            _ => {
                let mut catalog = catalog;
                catalog.put_table(Arc::new(handle.with_config(after.clone())));
                self.commit(&[CatalogRow::Table(after.clone())], &[], catalog)?;
                Ok((before, after))
            }
        }
    }

    /// Divides a table anew at evenly spaced keys; returns whether anything changed.
    pub fn rebalance(&self, id: TableId) -> Result<bool, AdminError> {
        let _one_at_a_time = self.changing.lock();
        let catalog = (*self.catalog()).clone();
        let Some(handle) = catalog.table_by_id(id).cloned() else { return Ok(false) };
        let shards = handle.config.shards.len();
        let rows: u64 = handle.shards().iter().map(|shard| shard.count()).sum();
        if rows < shards as u64 || rows == 0 {
            return Ok(false);
        }
        if shards > 1 {
            let starts = self.learned_starts(&handle, shards)?;
            self.divide(catalog, &handle, handle.config.clone(), starts)?;
        }
        Ok(true)
    }

    /// Gives the table new shards that begin at `starts`. No row moves: rows are stored under
    /// the table, so only the groups that order its writes are new ones.
    fn divide(
        &self,
        mut catalog: Catalog,
        handle: &Arc<TableHandle>,
        mut config: TableConfig,
        starts: Vec<Bytes>,
    ) -> Result<TableConfig, AdminError> {
        let old = CatalogRow::Dropped {
            table: config.id,
            groups: handle.config.shards.iter().map(|shard| shard.group).collect(),
            rows: false,
        };
        config.shards = self.new_shards(&mut catalog, starts);
        // From here on writers are sent back and ask again until the new shards are published.
        retire(handle);
        for shard in handle.shards() {
            shard.sync().wait()?;
        }
        // The old groups are not replayed again, so what they applied must be on disk.
        self.engine().flush()?;
        let shards = self.open_shards(&config)?;
        for index in handle.built_indexes() {
            // The entries are under the table too, and so there already.
            shards.iter().map(|shard| shard.set_built(index)).try_for_each(|set| set.wait().map(drop))?;
        }
        catalog.put_table(Arc::new(TableHandle::new(handle.db.clone(), config.clone(), shards)));
        let rows = [CatalogRow::Table(config.clone()), CatalogRow::Groups(catalog.group_next), old.clone()];
        self.commit(&rows, &[], catalog)?;
        self.finish_drop(&old)?;
        Ok(config)
    }

    /// Removes what a dropped table or shard set left: groups first, then rows, then the note.
    pub(crate) fn finish_drop(&self, row: &CatalogRow) -> Result<(), AdminError> {
        let CatalogRow::Dropped { table, groups, rows } = row else { return Ok(()) };
        for group in groups {
            self.close_group(*table, *group)?;
        }
        let mut batch = Batch::new();
        groups.iter().for_each(|group| storage::forget_group(&mut batch, *table, *group));
        if *rows {
            storage::drop_table(&mut batch, *table);
        }
        self.engine().write(batch)?;
        let catalog = (*self.catalog()).clone();
        self.commit(&[], &[row.key()], catalog)
    }

    /// Leaves a tombstone for the group. One that a crash kept from being closed is opened first.
    fn close_group(&self, table: TableId, group: GroupId) -> Result<(), AdminError> {
        let closed = match self.log.close_group(group) {
            Err(LogError::NotOpen(_)) => {
                match Shard::open(self.replicas(), self.log.clone(), table, group, KeyRange::all()) {
                    Ok(_) => self.log.close_group(group),
                    Err(shard::OpenError::Log(error)) => Err(error),
                    Err(error) => return Err(error.into()),
                }
            }
            other => other,
        };
        match closed {
            Ok(()) | Err(LogError::Tombstone(_)) => {
                self.replicas().forget(group);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Start keys that divide the table's present rows evenly, or the space of generated keys
    /// when there are too few rows to learn from.
    fn learned_starts(&self, table: &TableHandle, shards: usize) -> Result<Vec<Bytes>, AdminError> {
        let even = even_starts_checked(shards)?;
        let Some(first) = table.shards().first() else { return Ok(even) };
        // One view over all shards; whose count it would show does not matter here.
        let whole = Part { range: KeyRange::all(), group: first.group() };
        let rows = Table::new(self.replicas().store().clone(), table.config.id).snapshot(whole)?;
        let pieces = rows.split(&KeyRange::all(), shards)?;
        let starts: Vec<Bytes> = pieces
            .iter()
            .map(|piece| match &piece.start {
                KeyBound::Included(key) | KeyBound::Excluded(key) => Bytes::copy_from_slice(key.as_bytes()),
                KeyBound::Unbounded => Bytes::new(),
            })
            .collect();
        Ok(if starts.len() == shards { starts } else { even })
    }

    fn new_shards(&self, catalog: &mut Catalog, starts: Vec<Bytes>) -> Vec<ShardConfig> {
        let first = catalog.group_next;
        catalog.group_next += starts.len() as u64;
        starts.into_iter().zip(first..).map(|(start, n)| ShardConfig { group: GroupId(n), start }).collect()
    }
}

fn find_db(catalog: &Catalog, name: &str) -> Result<DbConfig, AdminError> {
    let db = catalog.database(name).ok_or_else(|| AdminError::DbMissing(name.into()))?;
    Ok(db.config.clone())
}

fn find_table(catalog: &Catalog, db: &str, name: &str) -> Result<Arc<TableHandle>, AdminError> {
    let db = catalog.database(db).ok_or_else(|| AdminError::DbMissing(db.into()))?;
    let missing = || AdminError::TableMissing { db: db.config.name.clone(), table: name.into() };
    db.table(name).cloned().ok_or_else(missing)
}

fn dropped(table: &TableConfig) -> CatalogRow {
    let groups = table.shards.iter().map(|shard| shard.group).collect();
    CatalogRow::Dropped { table: table.id, groups, rows: true }
}

fn retire(table: &Arc<TableHandle>) {
    table.shards().iter().for_each(|shard| shard.retire());
}

/// Takes the grants at the scopes that go out of the catalog; returns their row keys.
fn drop_grants(catalog: &mut Catalog, goes: impl Fn(Scope) -> bool) -> Vec<PrimaryKey> {
    let gone: Vec<_> = catalog.grants().iter().filter(|grant| goes(grant.scope)).cloned().collect();
    gone.into_iter()
        .map(|grant| {
            catalog.remove_grant(&grant.user, grant.scope);
            crate::catalog_row::grant_key(&grant.user, grant.scope)
        })
        .collect()
}

fn even_starts_checked(shards: usize) -> Result<Vec<Bytes>, AdminError> {
    if shards > SHARDS_MAX {
        return Err(AdminError::TooManyShards(SHARDS_MAX));
    }
    Ok(even_starts(shards.max(1)))
}
