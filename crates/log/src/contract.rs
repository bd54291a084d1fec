//! The contract between a log, the shards that write to it, and the engine they write into.
//!
//! ```text
//!   positions of one group:
//!
//!   1 ........ applied ........ soft ......... last        (grows to the right)
//!                      durable
//!
//!   durable   survives a power loss                 (moved by an fsync)
//!   soft      survives the end of the process       (moved by a write)
//!   applied   handed to the Applier and returned; never past a hard entry that is not durable
//! ```

use bytes::Bytes;

use crate::error::{ApplyError, LogError, ProposeError};
use crate::lsn::{Durability, GroupId, Lsn};
use crate::stats::LogStats;

/// One entry on its way to the engine.
pub type Entry = (GroupId, Lsn, Bytes);

/// Told once what became of a proposal. Runs on the log's own thread: fill a oneshot and return.
/// It must not wait for anything, nor call the log's blocking methods. Dropped without being called
/// only if that thread panicked; then nothing is known of the entry.
pub type Done = Box<dyn FnOnce(Result<Lsn, ProposeError>) + Send>;

/// Carries out ordered entries. Implemented by the owner of the groups.
pub trait Applier: Send + Sync {
    /// Carries out `entries`, visible when it returns. Called on one thread at a time.
    ///
    /// Entries of one group come in order of their Lsn, each once in the life of a process; a
    /// batch may hold many entries of many groups. After a restart the entries after
    /// [`Applier::applied`] come again. One engine batch per call is what makes this cheap. The
    /// rows and the position reached must be written in the same batch.
    fn apply(&self, entries: &[Entry]) -> Result<(), ApplyError>;

    /// The position of `group` the engine would have now, after a restart without a crash.
    fn applied(&self, group: GroupId) -> Lsn;

    /// Makes durable everything applied before the call. Called on a thread of its own, while
    /// `apply` goes on; the log deletes the entries afterwards.
    fn flush(&self) -> Result<(), ApplyError>;
}

/// One log for all groups of a node.
///
/// Dropping a log finishes what was proposed, makes it durable, and joins its threads.
pub trait Log: Send + Sync {
    /// Opens the group, creating it the first time. Replays the entries after `applied` through
    /// the applier before it returns; proposals are taken from then on. Blocks.
    ///
    /// `applied` is what the engine holds *durably*. If that is past the end of the log (a power
    /// loss took soft entries the engine had already flushed) the log goes on from there.
    fn open_group(&self, id: GroupId, applied: Lsn) -> Result<(), LogError>;

    /// Closes the group for good: its entries go, a durable tombstone stays, and it can never be
    /// opened again. Entries proposed before are finished first. Blocks.
    fn close_group(&self, id: GroupId) -> Result<(), LogError>;

    /// Orders `entry` after everything proposed to the group before. Never blocks on the disk.
    ///
    /// `done` is called once, after the entry is as durable as asked **and** applied.
    fn propose(&self, id: GroupId, entry: Bytes, durability: Durability, done: Done);

    /// Calls `done` with the group's last position once every entry proposed to it before this
    /// call is durable and applied, soft ones included.
    fn sync(&self, id: GroupId, done: Done);

    /// What the log has done since it was opened; it may lag behind the last answers.
    fn stats(&self) -> LogStats;
}
