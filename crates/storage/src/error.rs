//! Errors of reads.

use datum::{CorruptRow, PrimaryKey};
use engine::EngineError;
use log::GroupId;

use crate::TableId;

/// A failed read. A missing row is not an error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The row is damaged. The replica stops serving it and is repaired from another replica.
    #[error("row {key} of table {table} is damaged")]
    Corrupt {
        table: TableId,
        /// The row's key.
        key: PrimaryKey,
        /// The damage.
        #[source]
        cause: CorruptRow,
    },
    /// The key belongs to another shard. The query is retried with a newer version of the catalog.
    #[error("key {key} is not in the range of group {group}")]
    WrongShard {
        key: PrimaryKey,
        /// The group of the shard that was read.
        group: GroupId,
    },
    /// A record about a group or a table is damaged.
    #[error("the record of {what} is damaged")]
    CorruptMeta {
        /// The record.
        what: String,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ReadError {
    /// Whether the read only failed because it must not wait for the disk.
    #[must_use]
    pub fn needs_disk(&self) -> bool {
        matches!(self, ReadError::Engine(EngineError::NotInMemory))
    }
}

/// Why this program cannot use the content of an engine.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// A later version of the program wrote it.
    #[error("the stored data has format version {found}, newest known is {known}")]
    Newer {
        found: u32,
        /// The newest this program knows.
        known: u32,
    },
    /// The version itself could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The version could not be written into a new engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
}
