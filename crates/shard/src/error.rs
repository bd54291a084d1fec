//! Why a shard could not be opened or written; for a write, whether it took effect.

use datum::PrimaryKey;
use log::{GroupId, Interruption, LogError, ProposeError, Refusal};
use storage::ReadError;

/// A write that was not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// It never took effect and never will.
    #[error("the write was refused: {cause}")]
    Definite {
        /// Why.
        cause: WriteRefusal,
    },
    /// It may have taken effect, may still, or never will. Only reading tells.
    #[error("the write may or may not take effect: {cause}")]
    Indeterminate {
        /// What happened to it.
        cause: Interruption,
    },
}

/// Why a write never takes effect.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteRefusal {
    /// The row it was to be evaluated on could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log did not take it.
    #[error(transparent)]
    Log(#[from] Refusal),
    /// It was evaluated on a proposed row, and that proposal was refused.
    #[error("an earlier write of the same row was refused")]
    Dependency,
    /// The key belongs to another shard. The router asks again with a newer map.
    #[error("key {key} is not in the range of group {group}")]
    WrongShard {
        /// The key.
        key: PrimaryKey,
        /// The shard that was asked.
        group: GroupId,
    },
    /// The group was told of an index that this shard does not know yet, so it cannot keep it. The
    /// router asks again when the shard has a newer catalog.
    #[error("the shard of group {group} does not know all indexes yet")]
    IndexesBehind {
        /// The shard that was asked.
        group: GroupId,
    },
    /// The shard has handed its range to others. The router asks again with a newer map.
    #[error("the shard of group {group} is retired")]
    Retired {
        /// The shard that was asked.
        group: GroupId,
    },
}

impl WriteError {
    /// Whether the write is proved never to take effect.
    #[must_use]
    pub fn is_definite(&self) -> bool {
        matches!(self, WriteError::Definite { .. })
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

/// Why a shard could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// What the engine remembers about the shard could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log could not open the group, or not replay it.
    #[error(transparent)]
    Log(#[from] LogError),
}
