//! Changes to databases and tables. Each is one entry of the catalog's log.

use datum::{PrimaryKey, Text};
use io::task;
use log::Durability;
use reql::StoredFunc;
use storage::TableId;

use crate::catalog_row::CatalogRow;
use crate::change::Draft;
use crate::index_config::TableIndexes;
use crate::node::Core;
use crate::placement::{ShardPlaces, Wanted};
use crate::{
    AdminError, Catalog, Database, DbConfig, DbId, Grant, Scope, ShardHistory, TableConfig, TableHandle,
    WriteAcks,
};

/// What a new table may be given.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// Its id, one that nothing ever had; `None` makes one up.
    pub id: Option<TableId>,
    /// The field that holds the primary key.
    pub primary_key: Text,
    /// What its writes wait for.
    pub durability: Durability,
    /// How many replicas must hold a write.
    pub write_acks: WriteAcks,
    /// Into how many key ranges it is divided, and where their replicas are.
    pub shards: ShardsWanted,
}

/// What shards a table is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardsWanted {
    /// So many, placed by the cluster.
    Placed(Wanted),
    /// Exactly these.
    Named(Vec<ShardPlaces>),
}

impl ShardsWanted {
    /// So many shards with one replica each, on servers with the tag `default`.
    #[must_use]
    pub fn count(shards: usize) -> ShardsWanted {
        let tag = Text::from_static("default");
        let replicas = [(tag.clone(), 1)].into();
        ShardsWanted::Placed(Wanted { shards, replicas, primary_tag: tag, nonvoting_tags: Vec::new() })
    }
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            id: None,
            primary_key: Text::from_static("id"),
            durability: Durability::Hard,
            write_acks: WriteAcks::Majority,
            shards: ShardsWanted::count(1),
        }
    }
}

/// A change to a table's configuration; `None` leaves a setting as it is.
#[derive(Clone, Debug, Default)]
pub struct TableChange {
    /// Its name.
    pub name: Option<Text>,
    /// The database it is in. Rows and shards stay where they are, and what users were granted on it goes with it.
    pub db: Option<DbId>,
    /// What its writes wait for.
    pub durability: Option<Durability>,
    /// How many replicas must hold a write.
    pub write_acks: Option<WriteAcks>,
    /// Into how many key ranges it is divided, and where their replicas are.
    pub shards: Option<ShardsWanted>,
    /// Its write hook; `Some(None)` takes it away.
    pub write_hook: Option<Option<StoredFunc>>,
}

impl Core {
    /// Creates a database. Fails when the name is taken.
    pub fn create_db(&self, name: &str) -> Result<DbConfig, AdminError> {
        self.create_db_as(DbId(self.new_uuid()), name)
    }

    /// As [`Core::create_db`], with an id that nothing ever had.
    pub fn create_db_as(&self, id: DbId, name: &str) -> Result<DbConfig, AdminError> {
        let db = DbConfig { id, name: name.into() };
        self.administer(|catalog, draft| {
            if catalog.database(name).is_some() {
                return Err(AdminError::DbExists(name.into()));
            }
            draft.put(CatalogRow::Db(db.clone()));
            Ok(db.clone())
        })
    }

    /// Renames a database. Fails when it is not there or the new name is taken.
    pub fn rename_db(&self, id: DbId, new_name: &str) -> Result<(), AdminError> {
        self.administer(|catalog, draft| {
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

    /// The same, unless `permits` refuses the database of that name in the catalog in which it is dropped:
    /// [`AdminError::Forbidden`].
    pub fn drop_db_if(
        &self,
        name: &str,
        mut permits: impl FnMut(&Catalog, &Database) -> bool,
    ) -> Result<(DbConfig, Vec<TableConfig>), AdminError> {
        self.administer(|catalog, draft| {
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

    /// Creates a table and returns when this node has it.
    pub fn create_table(
        &self,
        db: &str,
        name: &str,
        options: TableOptions,
    ) -> Result<TableConfig, AdminError> {
        self.create_table_if(db, name, options, |_, _| true)
    }

    /// The same, unless `permits` refuses the database of that name in the catalog in which it is created:
    /// [`AdminError::Forbidden`].
    pub fn create_table_if(
        &self,
        db: &str,
        name: &str,
        options: TableOptions,
        mut permits: impl FnMut(&Catalog, &DbConfig) -> bool,
    ) -> Result<TableConfig, AdminError> {
        let id = options.id.unwrap_or_else(|| TableId::from_uuid(self.new_uuid()));
        self.administer(|catalog, draft| {
            let db = find_db(catalog, db)?;
            if !permits(catalog, &db) {
                return Err(AdminError::Forbidden);
            }
            if catalog.table(&db.name, name).is_some() {
                return Err(AdminError::TableExists { db: db.name, table: name.into() });
            }
            let places = self.places(catalog, &options.shards, None)?;
            let config = TableConfig {
                id,
                db: db.id,
                name: name.into(),
                primary_key: options.primary_key.clone(),
                durability: options.durability,
                write_acks: options.write_acks,
                indexes: TableIndexes::default(),
                write_hook: None,
                shards: self.founded(draft, crate::starts::even_starts(places.len()), &places),
                lineage: ShardHistory::default(),
            };
            draft.put(CatalogRow::Table(config.clone()));
            Ok(config)
        })
    }

    /// Drops a table; returns what it was.
    pub fn drop_table(&self, db: &str, name: &str) -> Result<TableConfig, AdminError> {
        self.drop_table_if(db, name, |_, _| true)
    }

    /// The same, unless `permits` refuses the table of that name in the catalog in which it is dropped:
    /// [`AdminError::Forbidden`].
    pub fn drop_table_if(
        &self,
        db: &str,
        name: &str,
        mut permits: impl FnMut(&Catalog, &TableHandle) -> bool,
    ) -> Result<TableConfig, AdminError> {
        self.administer(|catalog, draft| {
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

    /// Changes a table's settings; returns the configuration before and after.
    pub fn change_table(
        &self,
        id: TableId,
        change: &TableChange,
    ) -> Result<(TableConfig, TableConfig), AdminError> {
        self.change_table_while(id, change, &|| true)
    }

    /// The same, and fails where a replica is wanted and another is on its way out. Also where a shard is to have other
    /// replicas and has no majority: for another number of shards `plan_change` finds that.
    pub(crate) fn try_to_change_table(
        &self,
        id: TableId,
        change: &TableChange,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(TableConfig, TableConfig), AdminError> {
        let mut plan = self.plan_change(id, change, go_on)?;
        let moved = change.shards.as_ref().filter(|_| plan.is_none());
        let lacking = self.await_majority(id, moved, go_on)?;
        let version = self.catalog().version;
        let one_at_a_time = task::lock(&self.changing);
        plan.iter_mut().try_for_each(|plan| self.seal(id, plan))?;
        let outcome = self.administer_held(|catalog, draft| {
            let handle = table_by_id(catalog, id)?;
            let before = handle.config.clone();
            let mut after = before.clone();
            move_table(catalog, draft, change, &mut after)?;
            after.durability = change.durability.unwrap_or(before.durability);
            after.write_acks = change.write_acks.unwrap_or(before.write_acks);
            if let Some(hook) = &change.write_hook {
                after.write_hook.clone_from(hook);
            }
            match (&plan, &change.shards) {
                (Some(plan), _) => self.put_plan(draft, plan, &mut after)?,
                (None, Some(wanted)) => {
                    let places = self.places(catalog, wanted, Some(handle))?;
                    lacking.refuse(catalog, &before, &places)?;
                    self.replace_replicas(catalog, &mut after, &places)?;
                }
                (None, None) => {}
            }
            if after != before {
                draft.put(CatalogRow::Table(after.clone()));
            }
            Ok((before, after))
        });
        if let (Some(plan), Err(error)) = (&plan, &outcome)
            && !error.is_indeterminate()
        {
            self.give_up(id, plan);
        }
        drop(one_at_a_time);
        self.await_others(version);
        outcome
    }
}

pub(crate) fn find_db(catalog: &Catalog, name: &str) -> Result<DbConfig, AdminError> {
    let db = catalog.database(name).ok_or_else(|| AdminError::DbMissing(name.into()))?;
    Ok(db.config.clone())
}

fn find_table<'a>(catalog: &'a Catalog, db: &str, name: &str) -> Result<&'a TableHandle, AdminError> {
    let db = catalog.database(db).ok_or_else(|| AdminError::DbMissing(db.into()))?;
    let missing = || AdminError::TableMissing { db: db.config.name.clone(), table: name.into() };
    db.table(name).map(|table| &**table).ok_or_else(missing)
}

pub(crate) fn table_by_id(catalog: &Catalog, id: TableId) -> Result<&TableHandle, AdminError> {
    let missing = || AdminError::TableMissing { db: Text::new(), table: id.uuid().to_string().into() };
    catalog.table_by_id(id).map(|table| &**table).ok_or_else(missing)
}

/// Gives a table the name and the database that `change` asks for.
fn move_table(
    catalog: &Catalog,
    draft: &mut Draft,
    change: &TableChange,
    table: &mut TableConfig,
) -> Result<(), AdminError> {
    let db_named = |id: DbId| {
        let missing = || AdminError::DbMissing(id.0.to_string().into());
        catalog.database_by_id(id).map(|db| db.config.name.clone()).ok_or_else(missing)
    };
    let (db, name) =
        (change.db.unwrap_or(table.db), change.name.clone().unwrap_or_else(|| table.name.clone()));
    if (db, &name) == (table.db, &table.name) {
        return Ok(());
    }
    let (from_db, to_db) = (db_named(table.db)?, db_named(db)?);
    if catalog.table(&to_db, &name).is_some() {
        let from = format!("{from_db}.{}", table.name).into();
        return Err(AdminError::RenameTaken { from, to: format!("{to_db}.{name}").into() });
    }
    if db != table.db {
        let granted = catalog.grants().iter();
        for grant in granted.filter(|grant| matches!(grant.scope, Scope::Table(_, id) if id == table.id)) {
            draft.delete(crate::catalog_row::grant_key(&grant.user, grant.scope));
            let scope = Scope::Table(db, table.id);
            draft.put(CatalogRow::Grant(Grant { scope, ..grant.clone() }));
        }
    }
    (table.db, table.name) = (db, name);
    Ok(())
}

/// Deletes the grants at the scopes that go.
fn drop_grants(catalog: &Catalog, draft: &mut Draft, goes: impl Fn(Scope) -> bool) {
    let gone = catalog.grants().iter().filter(|grant| goes(grant.scope));
    let keys: Vec<PrimaryKey> =
        gone.map(|grant| crate::catalog_row::grant_key(&grant.user, grant.scope)).collect();
    keys.into_iter().for_each(|key| draft.delete(key));
}
