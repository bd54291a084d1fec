//! Rebalancing: gives a table as many shards as before, of equal size.

use std::time::{Duration, Instant};

use io::task;
use storage::TableId;

use super::Resharder;
use super::preparation::preparation_timeout;
use super::quorum::QuorumTimeout;
use crate::catalog::row::CatalogRow;
use crate::catalog::table_by_id;
use crate::error::AdminError;

/// The interval between lookups of the leaders.
const LEADER_RETRY_INTERVAL: Duration = Duration::from_millis(100);

impl Resharder {
    /// Splits a table anew at evenly spaced keys. Returns false, and does nothing, if it has fewer rows than shards, or
    /// none; a table with one shard needs no change. Waits as [`Resharder::change_table_while`] does, and for a leader
    /// of each shard: 30 seconds in all, plus 400 ms for each shard.
    pub fn rebalance(&self, id: TableId, should_continue: &dyn Fn() -> bool) -> Result<bool, AdminError> {
        let shards = self.catalog.shown().table_by_id(id).map_or(0, |table| table.config.shards.len());
        self.rebalance_until(id, task::now() + preparation_timeout(shards), should_continue)
    }

    /// The same. Fails if the shards are not ready to be sealed at `deadline`.
    pub fn rebalance_until(
        &self,
        id: TableId,
        deadline: Instant,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<bool, AdminError> {
        if self.catalog.shown().table_by_id(id).is_none() {
            return Ok(false);
        }
        let (rows, shards) = self.rows_led(id, deadline, should_continue)?;
        if rows < shards as u64 || rows == 0 {
            return Ok(false);
        }
        if shards == 1 {
            return Ok(true);
        }
        let Some(mut plan) = self.planner.plan_even(id, deadline, should_continue)? else { return Ok(true) };
        let _one_at_a_time = self.catalog.lock_changes();
        self.sealer.seal(id, &mut plan)?;
        let outcome = self.catalog.change_locked(|catalog, draft| {
            let mut after = table_by_id(catalog, id)?.config.clone();
            self.sealer.put_plan(draft, &plan, &mut after)?;
            draft.put(CatalogRow::Table(after));
            Ok(())
        });
        if outcome.as_ref().is_err_and(|error| !error.is_indeterminate()) {
            self.sealer.abort(id, &plan);
        }
        outcome.map(|()| true)
    }

    /// How many rows, as reported by the leaders, and how many shards a table has. Waits until each shard has a leader:
    /// until `deadline` at most, and for the quorum timeout if a quorum is missing.
    fn rows_led(
        &self,
        id: TableId,
        deadline: Instant,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<(u64, usize), AdminError> {
        let mut timeout = QuorumTimeout::new(&self.quorum, id);
        while should_continue() && task::now() < deadline && timeout.is_left() {
            let catalog = self.catalog.shown();
            let handles: Vec<_> = table_by_id(&catalog, id)?.shards().iter().collect();
            if let Some(led) = self.leaders.leaders(&handles).into_iter().collect::<Option<Vec<_>>>() {
                return Ok((led.iter().map(|(_, state)| state.rows).sum(), led.len()));
            }
            task::sleep(LEADER_RETRY_INTERVAL);
        }
        Err(self.quorum.missing(id).unwrap_or(AdminError::ReplicasNotReady))
    }
}
