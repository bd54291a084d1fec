//! How rows change. The only writer of rows.

use bytes::Bytes;
use datum::PrimaryKey;
use engine::{Batch, Space};

use crate::TableId;

/// What became of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange {
    /// The row.
    pub key: PrimaryKey,
    /// Its new bytes (`docs/formats/row.md`), or `None` if it is deleted.
    pub row: Option<Bytes>,
    /// Whether there was a row before, for the count.
    pub existed: bool,
}

/// Adds `change` to `batch`; by how much the table's count grows.
pub fn apply(batch: &mut Batch, table: TableId, change: &RowChange) -> i64 {
    let key: [&[u8]; 2] = [table.as_bytes(), change.key.as_bytes()];
    match &change.row {
        Some(row) => batch.put_joined(Space::Rows, &key, row.clone()),
        None => batch.delete_joined(Space::Rows, &key),
    }
    i64::from(change.row.is_some()) - i64::from(change.existed)
}
