//! Where records are kept: one append for many groups, one fsync for everyone who waits.
//!
//! ```text
//!   push, push, push   into a buffer          make_room   starts a segment when one is full
//!   write              one write(2)           begin_sync  what another thread runs: one fsync
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::error::LogError;
use crate::log_sync::LogSync;
use crate::lsn::{GroupId, Position};
use crate::outline::Outline;
use crate::record::{EntryKind, Record};

/// Why records could not be written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no space. Nothing was written; the same call may succeed later.
    #[error("disk is full")]
    Full,
    /// The disk failed. Nobody knows what is on it; the store must not be used again.
    #[error("disk failed")]
    Disk(#[from] std::io::Error),
}

/// One fsync, to be run on any thread.
pub struct SyncTask {
    log_sync: LogSync,
    file: Arc<dyn io::File>,
    through: Position,
}

impl SyncTask {
    pub(crate) fn new(log_sync: LogSync, file: Arc<dyn io::File>, through: Position) -> SyncTask {
        SyncTask { log_sync, file, through }
    }

    /// Makes everything written before [`Store::begin_sync`] durable. Run it once: after a
    /// failure a second success means nothing. Waits for who makes the log durable at this moment, and fails if
    /// that has failed: [`LogSync`].
    pub fn run(&self) -> std::io::Result<()> {
        self.log_sync.sync_segment(&self.file, self.through)
    }

    /// The point up to which the log is durable once [`SyncTask::run`] succeeded.
    pub fn through(&self) -> Position {
        self.through
    }
}

/// An entry read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// Its position.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Whose it is.
    pub kind: EntryKind,
    /// What was proposed.
    pub payload: Bytes,
}

/// What a store knows of a group.
#[derive(Clone, Debug, Default)]
pub struct StoredGroup {
    /// This replica's own peer id.
    pub(crate) peer: u64,
    pub(crate) outline: Outline,
    /// Whether the engine's rows are not to be believed.
    pub(crate) void: bool,
}

/// What a store holds on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// Number of segments.
    pub segments: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// Entries that left the log: of `group`, up to `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// The group.
    pub group: GroupId,
    /// The last position that is gone.
    pub index: u64,
    /// The last proposal up to there.
    pub proposed: u64,
}

/// Keeps the records of all groups of a node in one sequence.
///
/// What was pushed is readable and survives the process after `write`, and survives a power loss
/// after the task of a later `begin_sync` ran. After a [`StoreError::Disk`] nothing may be called.
pub trait Store: Send {
    /// What is known of an open group; `None` if it was never made.
    fn group(&self, id: GroupId) -> Option<&StoredGroup>;

    /// Whether the group was closed for good.
    fn is_tombstone(&self, id: GroupId) -> bool;

    /// Whether this replica left the group for good.
    fn is_gone(&self, id: GroupId, peer: u64) -> bool;

    /// Whether the last segment takes more records.
    fn has_room(&self) -> bool;

    /// Starts a new segment if the last one is full. Only between batches.
    fn make_room(&mut self) -> Result<(), StoreError>;

    /// Adds a record to the batch. An entry must follow the group's last, or replace one.
    fn push(&mut self, record: &Record<&[u8]>);

    /// Bytes in the batch.
    fn pushed_bytes(&self) -> usize;

    /// Appends the batch. After [`StoreError::Full`] the batch is still there.
    fn write(&mut self) -> Result<(), StoreError>;

    /// What makes everything written so far durable.
    fn begin_sync(&self) -> SyncTask;

    /// Told when a task has run well, so that later bytes can say what was durable.
    fn end_sync(&mut self, through: Position);

    /// Whether a mark would say something new.
    fn wants_mark(&self) -> bool;

    /// Adds a mark to the batch if it says something new.
    fn push_mark(&mut self);

    /// Reads written entries of `group` after `index`, at most about `bytes_max`, at least one
    /// if there is one.
    fn read(&self, group: GroupId, index: u64, bytes_max: usize) -> Result<Vec<StoredEntry>, LogError>;

    /// Deletes the oldest segments as long as every entry in them is at or before the position
    /// that `flushed` gives for its group. Groups that `flushed` does not name are kept, and so are those that have ended
    /// and are `ending`: that is not durable yet.
    fn delete_flushed(
        &mut self,
        flushed: &BTreeMap<GroupId, u64>,
        ending: &BTreeSet<GroupId>,
    ) -> Result<Vec<Compacted>, StoreError>;

    /// Notes beside the log how far it is durable: whoever opens it next finds out if it ends before that.
    fn note_end(&mut self) -> Result<(), StoreError>;

    /// What is on disk.
    fn size(&self) -> StoreSize;
}
