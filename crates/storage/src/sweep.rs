//! The end of a table and of a group.

use std::ops::Bound;
use std::sync::Arc;

use engine::{Batch, Direction, Snapshot, Space};
use log::GroupId;

use crate::layout::{applied_key, corrupt_meta, count_key, counts_prefix};
use crate::{ReadError, TableId};

/// Adds to `batch` the removal of all rows, index entries and counts of `table`.
///
/// Its groups must be closed before, or entries still on their way would bring rows back.
pub fn drop_table(batch: &mut Batch, table: TableId) {
    let start = table.as_bytes();
    // The last id of all is as good as never drawn; its rows would stay.
    let Some(next) = table.next() else { return };
    batch.delete_range(Space::Rows, start, next.as_bytes());
    batch.delete_range(Space::Index, start, next.as_bytes());
    batch.delete_range(Space::Meta, &counts_prefix(table), &counts_prefix(next));
}

/// Adds to `batch` the removal of what is remembered about a closed group; its rows stay.
pub fn forget_group(batch: &mut Batch, table: TableId, group: GroupId) {
    batch.delete(Space::Meta, &applied_key(group));
    batch.delete(Space::Meta, &count_key(table, group));
}

/// The tables that have rows in the snapshot. One seek per table.
///
/// One that the catalog does not know is left from a drop that a crash interrupted.
pub fn tables_present(snapshot: &Arc<dyn Snapshot>) -> Result<Vec<TableId>, ReadError> {
    let mut tables = Vec::new();
    let mut after = Some(TableId::from_uuid(uuid::Uuid::nil()));
    while let Some(start) = after {
        let span = (Bound::Included(&start.as_bytes()[..]), Bound::Unbounded);
        let mut scan = Arc::clone(snapshot).scan(Space::Rows, span, Direction::Ascending);
        let Some((key, _)) = scan.next()? else { break };
        let id = key.first_chunk().ok_or_else(|| corrupt_meta("a row key"))?;
        let table = TableId::from_uuid(uuid::Uuid::from_bytes(*id));
        tables.push(table);
        after = table.next();
    }
    Ok(tables)
}
