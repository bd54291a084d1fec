//! Removal of tables, groups and indexes.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use datum::KeyRange;
use engine::{Batch, DeletedKeys, Direction, Engine, Snapshot, Space};
use log::GroupId;

use crate::layout::{
    RowRange, after_prefix, applied_key, build_key, builds_prefix, corrupt_meta, count_key, counts_prefix,
    dictionaries_prefix, index_prefix, table_builds_prefix,
};
use crate::{IndexId, ReadError, TableId};

/// Adds to `batch` the removal of all rows, index entries, counts, build records and dictionaries of `table`.
///
/// Its groups must be closed first: entries still being applied would bring rows back.
pub fn drop_table(batch: &mut Batch, table: TableId) {
    let start = table.as_bytes();
    // The last possible id is practically never drawn; its rows would stay.
    let Some(next) = table.next() else { return };
    batch.delete_range(Space::Rows, start, next.as_bytes());
    batch.delete_range(Space::Index, start, next.as_bytes());
    batch.delete_range(Space::Meta, &counts_prefix(table), &counts_prefix(next));
    batch.delete_range(Space::Meta, &table_builds_prefix(table), &table_builds_prefix(next));
    batch.delete_range(Space::Meta, &dictionaries_prefix(table), &dictionaries_prefix(next));
}

/// Adds to `batch` the removal of the rows of `table` in `range`, without reading them. Their index entries stay, and so do
/// rows in the cache: [`Store::forget_cached`](crate::Store::forget_cached).
pub fn drop_rows(batch: &mut Batch, table: TableId, range: &KeyRange) {
    // The last possible id is practically never drawn; its rows would stay.
    if let (start, Some(end)) = row_bounds(table, range) {
        batch.delete_range(Space::Rows, &start, &end);
    }
}

/// Adds to `batch` the removal of the entries of all indexes of `table`, without reading them.
pub fn drop_index_entries(batch: &mut Batch, table: TableId) {
    if let Some(next) = table.next() {
        batch.delete_range(Space::Index, table.as_bytes(), next.as_bytes());
    }
}

/// The engine's keys of the rows of `table` in `range`: the first one inside and the first one outside, if there is one.
#[must_use]
pub fn row_bounds(table: TableId, range: &KeyRange) -> (Vec<u8>, Option<Vec<u8>>) {
    RowRange::new(table, range).bounds()
}

/// Gives the disk space of a dropped table back, in the background. The batch of [`drop_table`] must be written.
pub fn reclaim_table(engine: &dyn Engine, table: TableId) {
    let Some(next) = table.next() else { return };
    for space in [Space::Rows, Space::Index] {
        engine.reclaim(space, table.as_bytes(), next.as_bytes(), DeletedKeys::NeverWrittenAgain);
    }
}

/// Gives the disk space of a dropped index back, in the background. The batch of [`drop_index`] must be written.
pub fn reclaim_index(engine: &dyn Engine, table: TableId, index: IndexId) {
    let start = index_prefix(table, index);
    if let Some(end) = after_prefix(&start) {
        engine.reclaim(Space::Index, &start, &end, DeletedKeys::MayBeWrittenAgain);
    }
}

/// Adds to `batch` the removal of all records about a closed group. Its rows stay.
pub fn forget_group(batch: &mut Batch, table: TableId, group: GroupId) {
    batch.delete(Space::Meta, &applied_key(group));
    batch.delete(Space::Meta, &count_key(table, group));
    let builds = builds_prefix(table, group);
    if let Some(end) = after_prefix(&builds) {
        batch.delete_range(Space::Meta, &builds, &end);
    }
}

/// Adds to `batch` the removal of all entries of an index, and of the records about building it of `groups`, which
/// order the table's writes.
///
/// No log entry of those groups may add entries of the index afterwards.
pub fn drop_index(batch: &mut Batch, table: TableId, index: IndexId, groups: &[GroupId]) {
    let start = index_prefix(table, index);
    if let Some(end) = after_prefix(&start) {
        batch.delete_range(Space::Index, &start, &end);
    }
    for group in groups {
        batch.delete(Space::Meta, &build_key(table, *group, index));
    }
}

/// The indexes of `table` that have entries or build records in the snapshot. One seek per index, and one for the
/// records.
///
/// An index that the catalog no longer has is left over from a drop that was interrupted by a crash, or its entries
/// were written after the drop.
pub fn indexes_present(snapshot: &Arc<dyn Snapshot>, table: TableId) -> Result<BTreeSet<IndexId>, ReadError> {
    let mut indexes = indexes_noted(snapshot, table)?;
    let mut from = Some(table.as_bytes().to_vec());
    let end = after_prefix(table.as_bytes());
    while let Some(start) = from {
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = (Bound::Included(&start[..]), end);
        let mut scan = Arc::clone(snapshot).scan(Space::Index, range, Direction::Ascending);
        let Some((key, _)) = scan.next()? else { break };
        let id = key.get(16..20).and_then(|id| id.try_into().ok());
        let index = IndexId(u32::from_be_bytes(id.ok_or_else(|| corrupt_meta("an index key"))?));
        indexes.insert(index);
        from = after_prefix(&index_prefix(table, index));
    }
    Ok(indexes)
}

/// The indexes of `table` that have build records in the snapshot.
fn indexes_noted(snapshot: &Arc<dyn Snapshot>, table: TableId) -> Result<BTreeSet<IndexId>, ReadError> {
    let prefix = table_builds_prefix(table);
    let end = after_prefix(&prefix);
    let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let mut scan =
        Arc::clone(snapshot).scan(Space::Meta, (Bound::Included(&prefix[..]), end), Direction::Ascending);
    let mut indexes = BTreeSet::new();
    while let Some((key, _)) = scan.next()? {
        let id = key.last_chunk().ok_or_else(|| corrupt_meta("the key of an index build"))?;
        indexes.insert(IndexId(u32::from_be_bytes(*id)));
    }
    Ok(indexes)
}

/// The tables that have rows in the snapshot. One seek per table.
///
/// A table that the catalog does not have is left over from a drop that was interrupted by a crash.
pub fn tables_present(snapshot: &Arc<dyn Snapshot>) -> Result<Vec<TableId>, ReadError> {
    let mut tables = Vec::new();
    let mut after = Some(TableId::from_uuid(uuid::Uuid::nil()));
    while let Some(start) = after {
        let range = (Bound::Included(&start.as_bytes()[..]), Bound::Unbounded);
        let mut scan = Arc::clone(snapshot).scan(Space::Rows, range, Direction::Ascending);
        let Some((key, _)) = scan.next()? else { break };
        let id = key.first_chunk().ok_or_else(|| corrupt_meta("a row key"))?;
        let table = TableId::from_uuid(uuid::Uuid::from_bytes(*id));
        tables.push(table);
        after = table.next();
    }
    Ok(tables)
}

/// The groups that have records in the engine.
pub fn groups_present(snapshot: &Arc<dyn Snapshot>) -> Result<Vec<GroupId>, ReadError> {
    let (first, last) = (applied_key(GroupId(0)), applied_key(GroupId(u64::MAX)));
    let range = (Bound::Included(&first[..]), Bound::Included(&last[..]));
    let mut scan = Arc::clone(snapshot).scan(Space::Meta, range, Direction::Ascending);
    let mut groups = Vec::new();
    while let Some((key, _)) = scan.next()? {
        let number = key.get(1..).and_then(|bytes| bytes.try_into().ok());
        let number = number.ok_or_else(|| corrupt_meta("a group's key"))?;
        groups.push(GroupId(u64::from_be_bytes(number)));
    }
    Ok(groups)
}
