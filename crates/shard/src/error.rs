//! Errors of opening and of writing a shard; for a write, whether it took effect.

use datum::PrimaryKey;
use log::{GroupId, Interruption, LogError, ProposeError, Refusal};
use storage::ReadError;

/// A write that was not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// The write did not take effect and never will.
    #[error("the write was refused: {cause}")]
    Definite {
        /// The reason.
        cause: WriteRefusal,
    },
    /// The write may have taken effect, may still do so, or never will. Only a read can tell.
    #[error("the write may or may not take effect: {cause}")]
    Indeterminate {
        /// The reason.
        cause: Interruption,
    },
}

/// The reason why a write never takes effect.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteRefusal {
    /// The row that the write was to be evaluated on could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log refused the entry.
    #[error(transparent)]
    Log(#[from] Refusal),
    /// The disk of the server is almost full.
    #[error("the disk is almost full: rows can be deleted, but not written until there is space again")]
    AlmostFull,
    /// The write was evaluated on a proposed row, and that proposal was refused.
    #[error("an earlier write of the same row was refused")]
    Dependency,
    /// The key belongs to another shard. The query is retried with a newer version of the catalog.
    #[error("key {key} is not in the range of group {group}")]
    WrongShard {
        key: PrimaryKey,
        /// The shard that was written to.
        group: GroupId,
    },
    /// The group has an index that this shard does not know yet and so cannot maintain. The router retries when the
    /// shard has a newer catalog.
    #[error("the shard of group {group} does not know all indexes yet")]
    IndexesBehind {
        /// The shard that was written to.
        group: GroupId,
    },
    /// The group is sealed: other shards have its range. The query is retried with a newer version of the catalog.
    #[error("the shard of group {group} is retired")]
    Retired {
        /// The shard that was written to.
        group: GroupId,
    },
}

impl WriteError {
    /// Whether the write certainly never takes effect.
    #[must_use]
    pub fn is_definite(&self) -> bool {
        matches!(self, WriteError::Definite { .. })
    }

    /// Whether the write was only refused because it must not wait for the disk ([`ReadError::needs_disk`]).
    #[must_use]
    pub fn needs_disk(&self) -> bool {
        match self {
            WriteError::Definite { cause: WriteRefusal::Read(error) } => error.needs_disk(),
            WriteError::Definite { .. } | WriteError::Indeterminate { .. } => false,
        }
    }
}

impl From<WriteRefusal> for WriteError {
    fn from(cause: WriteRefusal) -> Self {
        WriteError::Definite { cause }
    }
}

impl From<ReadError> for WriteError {
    fn from(cause: ReadError) -> Self {
        WriteRefusal::Read(cause).into()
    }
}

impl From<ProposeError> for WriteError {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::Definite(refusal) => WriteRefusal::Log(refusal).into(),
            ProposeError::Indeterminate(cause) => WriteError::Indeterminate { cause },
        }
    }
}

/// Errors of opening a shard.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The shard's records in the engine could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log could not open or replay the group.
    #[error(transparent)]
    Log(#[from] LogError),
}
