//! Changes of a table's shards. What has to be copied before stops with the query that wants it.

use cluster::TableChange;
use reql::EvalError;
use storage::TableId;

use crate::context::Cx;
use crate::failure::admin_failed;

/// Changes a table's configuration.
pub(crate) fn change_table(cx: &Cx, id: TableId, change: &TableChange) -> Result<(), EvalError> {
    let changed = cx.node().change_table_while(id, change, &|| cx.check_cancel().is_ok());
    cx.check_cancel()?;
    changed.map(drop).map_err(admin_failed)
}

/// Makes the shards of a table equal; whether there are rows enough for that.
pub(crate) fn rebalance(cx: &Cx, id: TableId) -> Result<bool, EvalError> {
    let changed = cx.node().rebalance(id, &|| cx.check_cancel().is_ok());
    cx.check_cancel()?;
    changed.map_err(admin_failed)
}
