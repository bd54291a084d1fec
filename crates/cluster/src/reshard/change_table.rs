//! Changes of a table's settings, including its number of shards.

use io::task;
use storage::TableId;

use super::Resharder;
use super::removal_wait::{REMOVAL_CHECK_INTERVAL, RemovalWait};
use super::table_change::TableChange;
use crate::catalog::row::{CatalogRow, grant_key};
use crate::catalog::{Catalog, Draft, table_by_id};
use crate::config::{DbId, Grant, Scope, TableConfig};
use crate::error::AdminError;

impl Resharder {
    /// Changes a table's settings; returns the configuration before and after.
    pub fn change_table(
        &self,
        id: TableId,
        change: &TableChange,
    ) -> Result<(TableConfig, TableConfig), AdminError> {
        self.change_table_while(id, change, &|| true)
    }

    /// One attempt. Fails if a server is to get a new replica and its old one is still being removed, and if a shard
    /// without a quorum would get other replicas (if the number of shards changes, `plan_change` checks that).
    fn try_to_change_table(
        &self,
        id: TableId,
        change: &TableChange,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<(TableConfig, TableConfig), AdminError> {
        let mut plan = self.planner.plan_change(id, change, should_continue)?;
        let moved = change.shards.as_ref().filter(|_| plan.is_none());
        let lacking = self.quorum.await_quorum(id, moved, should_continue)?;
        let version = self.catalog.shown().version;
        let one_at_a_time = self.catalog.lock_changes();
        plan.iter_mut().try_for_each(|plan| self.sealer.seal(id, plan))?;
        let outcome = self.catalog.administer_locked(|catalog, draft| {
            let handle = table_by_id(catalog, id)?;
            let before = handle.config.clone();
            let mut after = before.clone();
            move_table(catalog, draft, change, &mut after)?;
            after.durability = change.durability.unwrap_or(before.durability);
            after.write_acks = change.write_acks.unwrap_or(before.write_acks);
            after.compression = change.compression.unwrap_or(before.compression);
            if let Some(hook) = &change.write_hook {
                after.write_hook.clone_from(hook);
            }
            match (&plan, &change.shards) {
                (Some(plan), _) => self.sealer.put_plan(draft, plan, &mut after)?,
                (None, Some(desired)) => {
                    let places = self.placer.places(catalog, desired, Some(handle))?;
                    lacking.refuse(catalog, &before, &places)?;
                    self.placer.replace_replicas(catalog, &mut after, &places)?;
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
            self.sealer.abort(id, plan);
        }
        drop(one_at_a_time);
        self.catalog.await_other_servers(version);
        outcome
    }

    /// As [`Resharder::change_table`], while `should_continue` returns true. Changing the number of shards may need
    /// replicas on other servers first, and a server can get a new replica only when the old one is removed; both waits
    /// are bounded.
    pub fn change_table_while(
        &self,
        id: TableId,
        change: &TableChange,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<(TableConfig, TableConfig), AdminError> {
        let mut wait = RemovalWait::new(&self.catalog, &self.leaders, id);
        loop {
            match self.try_to_change_table(id, change, should_continue) {
                Err(AdminError::StillBeingRemoved { .. }) if should_continue() && wait.is_left() => {
                    task::sleep(REMOVAL_CHECK_INTERVAL)
                }
                outcome => return outcome,
            }
        }
    }
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
            draft.delete(grant_key(&grant.user, grant.scope));
            let scope = Scope::Table(db, table.id);
            draft.put(CatalogRow::Grant(Grant { scope, ..grant.clone() }));
        }
    }
    (table.db, table.name) = (db, name);
    Ok(())
}
