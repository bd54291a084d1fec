//! The contract of a record store: one append for many groups, one fsync for all callers that wait.
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
    /// The disk failed. Its contents are unknown; the store must not be used again.
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

    /// Makes everything written before [`Store::begin_sync`] durable. Run it once: a success after a failure means
    /// nothing. Waits for a concurrent fsync, and fails if that fails: [`LogSync`].
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
    pub term: u64,
    pub kind: EntryKind,
    /// The proposed bytes.
    pub payload: Bytes,
}

/// The state of a group in a store.
#[derive(Clone, Debug, Default)]
pub struct StoredGroup {
    /// The peer id of this replica.
    pub(crate) peer: u64,
    pub(crate) outline: Outline,
    /// Whether the engine's rows are invalid.
    pub(crate) rows_invalid: bool,
}

/// The size of a store on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    pub segments: u64,
    /// In all segments together.
    pub bytes: u64,
}

/// Entries that left the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    pub group: GroupId,
    /// The last position that was removed.
    pub index: u64,
    /// The last proposal up to there.
    pub proposed: u64,
}

/// Keeps the records of all groups of a node in one sequence.
///
/// A pushed record is readable, and survives the process, after `write`. It survives a power loss after the task of a
/// later `begin_sync` has run. After a [`StoreError::Disk`] no method may be called.
pub trait Store: Send {
    /// The state of an open group; `None` if it was never created.
    fn group(&self, id: GroupId) -> Option<&StoredGroup>;

    /// Whether the group was closed permanently.
    fn is_tombstone(&self, id: GroupId) -> bool;

    /// Whether this replica was permanently removed from the group.
    fn is_removed(&self, id: GroupId, peer: u64) -> bool;

    /// Whether the last segment takes more records.
    fn has_room(&self) -> bool;

    /// Starts a new segment if the last one is full. Only between batches.
    fn make_room(&mut self) -> Result<(), StoreError>;

    /// Starts a new segment if the last one holds a fair part of what it may, so that it can be deleted. Only between
    /// batches.
    fn end_segment(&mut self) -> Result<(), StoreError>;

    /// Adds a record to the batch. An entry must follow the group's last, or replace one.
    fn push(&mut self, record: &Record<&[u8]>);

    /// Bytes in the batch.
    fn pushed_bytes(&self) -> usize;

    /// Appends the batch. After [`StoreError::Full`] the batch is still there.
    fn write(&mut self) -> Result<(), StoreError>;

    /// The task that makes everything written so far durable.
    fn begin_sync(&self) -> SyncTask;

    /// A task has succeeded: later marks can contain the position up to which the log is durable.
    fn end_sync(&mut self, through: Position);

    /// Whether a mark would contain something new.
    fn wants_mark(&self) -> bool;

    /// Adds a mark to the batch, if it contains something new.
    fn push_mark(&mut self);

    /// Reads written entries of `group` after `index`, at most about `bytes_max`, at least one
    /// if there is one.
    fn read(&self, group: GroupId, index: u64, bytes_max: usize) -> Result<Vec<StoredEntry>, LogError>;

    /// Deletes the oldest segments while every entry in them is at or before the position in `flushed` of its group. The
    /// entries of open groups that `flushed` does not name are kept, as are the entries of groups in `closing`, whose
    /// closing record is not durable yet.
    fn delete_flushed(
        &mut self,
        flushed: &BTreeMap<GroupId, u64>,
        closing: &BTreeSet<GroupId>,
    ) -> Result<Vec<Compacted>, StoreError>;

    /// The bytes of the first segment with an entry after the position in `flushed` of its group, and of all later ones;
    /// zero if there is none. Otherwise as [`Store::delete_flushed`].
    fn unflushed_bytes(&self, flushed: &BTreeMap<GroupId, u64>, closing: &BTreeSet<GroupId>) -> u64;

    /// Writes the high-water mark: the next open fails if the log ends before the position that is durable now.
    fn write_high_water_mark(&mut self) -> Result<(), StoreError>;

    /// The size on disk.
    fn size(&self) -> StoreSize;
}
