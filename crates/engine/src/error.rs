//! Errors of engines.

use std::path::PathBuf;

/// A failed engine operation. After a failed write or flush the engine refuses further writes:
/// its owner stops and reopens it, replaying from the log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    /// Stored bytes are damaged. The replica stops serving and is repaired from another replica.
    #[error("engine data is damaged: {detail}")]
    Corrupt {
        /// The damage, and the file that has it.
        detail: String,
    },
    /// The disk is full. Lookups still work, and snapshots again once the changes buffered before the failure can be
    /// written; the operator makes room.
    #[error("no space left for the engine: {detail}")]
    Full {
        /// Which file could not grow.
        detail: String,
    },
    /// Another process holds the directory. Only opening fails like this.
    #[error("{} is in use by another process: {detail}", dir.display())]
    Locked {
        /// The engine's directory.
        dir: PathBuf,
        /// The process that holds it, as far as is known.
        detail: String,
    },
    /// Only the disk has the value, and the read was one that must not wait for it. It can be repeated where it may.
    #[error("the value is not in memory")]
    NotInMemory,
    /// The operating system refused a read or a write.
    #[error("engine could not reach the disk: {detail}")]
    Io {
        /// The refused operation.
        detail: String,
    },
}
