//! The id of a table, under which its rows are stored.

use std::fmt;

use uuid::Uuid;

/// Identifies a table permanently. Never reused, not even by a table of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(Uuid);

impl TableId {
    /// The length of an id in bytes.
    pub const BYTES: usize = 16;

    #[must_use]
    pub const fn from_uuid(uuid: Uuid) -> TableId {
        TableId(uuid)
    }

    /// The UUID, as `table_config` shows it.
    #[must_use]
    pub const fn uuid(&self) -> Uuid {
        self.0
    }

    /// The prefix of the table's keys in the engine.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; TableId::BYTES] {
        self.0.as_bytes()
    }

    /// The smallest id above this one, or `None` if this is the last.
    pub(crate) fn next(self) -> Option<TableId> {
        let next = self.0.as_u128().checked_add(1)?;
        Some(TableId(Uuid::from_u128(next)))
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
