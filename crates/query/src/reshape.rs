//! Changes of a table's shards. What has to be copied before stops with the query that wants it.

use cluster::TableChange;
use reql::EvalError;
use storage::TableId;

use crate::context::Cx;
use crate::failure::admin_failed;

/// Changes a table's configuration.
pub(crate) fn change_table(cx: &Cx, id: TableId, change: &TableChange) -> Result<(), EvalError> {
    let assembled = cx.node().assemble_for(id, change, &|| cx.check_cancel().is_ok());
    cx.check_cancel()?;
    assembled.map_err(admin_failed)?;
    cx.node().change_table(id, change).map(drop).map_err(admin_failed)
}

/// Brings all shards of a table to this server, so that it can divide them anew.
pub(crate) fn assemble(cx: &Cx, id: TableId) -> Result<(), EvalError> {
    let assembled = cx.node().assemble(id, &|| cx.check_cancel().is_ok());
    cx.check_cancel()?;
    assembled.map_err(admin_failed)
}
