//! Shards of equal size: a table divided anew.

use std::time::Instant;

use io::task;
use storage::TableId;

use crate::AdminError;
use crate::admin::table_by_id;
use crate::catalog_row::CatalogRow;
use crate::node::Core;
use crate::plan::preparation;

impl Core {
    /// Divides a table anew at evenly spaced keys. Returns false, and does nothing, if it has fewer rows than
    /// shards, or none; one shard alone is as it should be. Waits as [`Core::change_table_while`] does, also
    /// for who leads each shard: half a minute for everything, and longer the more shards the table has.
    pub fn rebalance(&self, id: TableId, go_on: &dyn Fn() -> bool) -> Result<bool, AdminError> {
        let shards = self.catalog().table_by_id(id).map_or(0, |table| table.config.shards.len());
        self.rebalance_until(id, task::now() + preparation(shards), go_on)
    }

    /// The same; what is not ready for the seals at `deadline` is an error.
    pub fn rebalance_until(
        &self,
        id: TableId,
        deadline: Instant,
        go_on: &dyn Fn() -> bool,
    ) -> Result<bool, AdminError> {
        if self.catalog().table_by_id(id).is_none() {
            return Ok(false);
        }
        let (rows, shards) = self.rows_led(id, deadline, go_on)?;
        if rows < shards as u64 || rows == 0 {
            return Ok(false);
        }
        if shards == 1 {
            return Ok(true);
        }
        let Some(mut plan) = self.plan_even(id, deadline, go_on)? else { return Ok(true) };
        let _one_at_a_time = task::lock(&self.changing);
        self.seal(id, &mut plan)?;
        let outcome = self.change_held(|catalog, draft| {
            let mut after = table_by_id(catalog, id)?.config.clone();
            self.put_plan(draft, &plan, &mut after)?;
            draft.put(CatalogRow::Table(after));
            Ok(())
        });
        if outcome.as_ref().is_err_and(|error| !error.is_indeterminate()) {
            self.give_up(id, &plan);
        }
        outcome.map(|()| true)
    }
}
