//! Deletes a removed replica's data, but only once its tombstone is durable; otherwise a power loss could bring a stale
//! replica back. On a full disk there may be no space for the tombstone. The deletion then waits until there is, and
//! until then no new replica of the group is opened here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Batch;
use io::task;
use log::{GroupId, Log, LogError};
use shard::Replicas;
use storage::TableId;

use crate::error::AdminError;
use crate::locks::{Rank, RankedGuard, RankedMutex};
use crate::routing::LocalReplica;

/// The time between two attempts to write a tombstone.
const TOMBSTONE_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// How a replica of this node ends.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// The replica leaves its group, which continues on other servers.
    Left,
    /// The group ends on all servers.
    Closed,
}

/// A removed replica whose tombstone is not durable yet.
pub(super) struct Removed {
    pub(super) table: TableId,
    /// The open replica, if its rows are deleted with it.
    pub(super) open: Option<LocalReplica>,
}

#[derive(Default)]
struct Waiting {
    replicas: BTreeMap<GroupId, Removed>,
    attempted_at: Option<Instant>,
}

/// Writes the tombstones of removed replicas.
pub(super) struct Tombstones {
    log: Arc<dyn Log>,
    replicas: Arc<Replicas>,
    waiting: RankedMutex<Waiting>,
}

impl Tombstones {
    pub(super) fn new(log: Arc<dyn Log>, replicas: Arc<Replicas>) -> Tombstones {
        Tombstones { log, replicas, waiting: RankedMutex::new(Rank::Tombstones, Waiting::default()) }
    }

    fn lock(&self) -> RankedGuard<'_, Waiting> {
        self.waiting.lock()
    }

    /// Ends a replica in the log. True if its tombstone is durable, so that its data may be deleted; if not, call this again
    /// later.
    pub(super) fn write(&self, group: GroupId, end: End) -> Result<bool, AdminError> {
        let ended = match end {
            End::Left => self.log.leave_group(group),
            End::Closed => self.log.close_group(group),
        };
        match ended {
            Ok(()) | Err(LogError::Tombstone(_) | LogError::Removed { .. } | LogError::NotOpen(_)) => {
                Ok(true)
            }
            // A log that has stopped writes nothing any more. The next start sweeps the remains.
            Err(LogError::TombstonePending(_) | LogError::Stopped) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Leaves a group as the replica that the log knows. True if another replica of the group may be opened here now. The
    /// rows stay until a copy for the next replica overwrites them.
    pub(super) fn leave(&self, table: TableId, group: GroupId) -> Result<bool, AdminError> {
        let is_durable = self.write(group, End::Left)?;
        self.replicas.forget(group);
        match is_durable {
            true => {
                let mut batch = Batch::new();
                storage::forget_group(&mut batch, table, group);
                self.replicas.engine().write(batch)?;
            }
            false => self.add(group, Removed { table, open: None }),
        }
        Ok(is_durable)
    }

    /// Keeps a replica whose tombstone is not durable yet.
    pub(super) fn add(&self, group: GroupId, removed: Removed) {
        let mut waiting = self.lock();
        waiting.replicas.insert(group, removed);
        waiting.attempted_at = Some(task::now());
    }

    /// Takes a replica whose tombstone has become durable.
    pub(super) fn take(&self, group: GroupId) -> Option<Removed> {
        self.lock().replicas.remove(&group)
    }

    /// Whether a replica of the group waits for its tombstone.
    pub(super) fn has_group(&self, group: GroupId) -> bool {
        self.lock().replicas.contains_key(&group)
    }

    /// Whether a replica of the table waits for its tombstone: rows of the table may belong to it.
    pub(super) fn has_table(&self, table: TableId) -> bool {
        self.lock().replicas.values().any(|removed| removed.table == table)
    }

    /// The groups whose tombstones are to be tried again now.
    pub(super) fn due(&self) -> Vec<GroupId> {
        let mut waiting = self.lock();
        let now = task::now();
        if waiting.attempted_at.is_some_and(|at| now < at + TOMBSTONE_RETRY_INTERVAL) {
            return Vec::new();
        }
        if !waiting.replicas.is_empty() {
            waiting.attempted_at = Some(now);
        }
        waiting.replicas.keys().copied().collect()
    }
}
