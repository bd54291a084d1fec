//! What a replica leaves behind is forgotten when it is durable in the log that it has gone. A full disk has no space for
//! that, and rows go on becoming durable: after a power loss a replica would be there that has lost what it had applied.
//! So that waits until there is space, and nothing comes in its place before.

use io::task;
use log::{GroupId, LogError};
use storage::TableId;

use crate::AdminError;
use crate::node::Core;
use crate::pending::Departed;

/// How a replica goes.
#[derive(Clone, Copy)]
pub(crate) enum Parting {
    /// Its group lives on elsewhere.
    Leaves,
    /// Its group ends everywhere.
    Closes,
}

impl Core {
    /// Ends a replica in the log; whether that is durable, and what it leaves behind may be forgotten. If not, it is asked
    /// again.
    pub(crate) fn part(&self, group: GroupId, parting: Parting) -> Result<bool, AdminError> {
        let parted = match parting {
            Parting::Leaves => self.log.leave_group(group),
            Parting::Closes => self.log.close_group(group),
        };
        match parted {
            Ok(()) | Err(LogError::Tombstone(_) | LogError::Gone { .. } | LogError::NotOpen(_)) => Ok(true),
            Err(LogError::LastWord(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps in mind what is to be forgotten later.
    pub(crate) fn note_departed(&self, group: GroupId, departed: Departed) {
        task::lock(&self.pending).departed.insert(group, departed);
    }

    /// Whether a replica of the group has gone and nothing may come in its place yet.
    pub(crate) fn is_departing(&self, group: GroupId) -> bool {
        task::lock(&self.pending).departed.contains_key(&group)
    }

    /// Whether rows of a table may belong to such a replica.
    pub(crate) fn has_departing(&self, table: TableId) -> bool {
        task::lock(&self.pending).departed.values().any(|departed| departed.table == table)
    }

    /// Forgets what those leave behind of whom there was space to say that they have gone.
    pub(crate) fn forget_departed(&self) -> Result<(), AdminError> {
        let groups: Vec<GroupId> = task::lock(&self.pending).departed.keys().copied().collect();
        if groups.is_empty() {
            return Ok(());
        }
        let _one_at_a_time = task::lock(&self.publishing);
        let catalog = self.catalog();
        for group in groups {
            if !self.part(group, Parting::Leaves)? {
                continue;
            }
            let departed = task::lock(&self.pending).departed.remove(&group);
            if let Some(Departed { table, open }) = departed {
                self.forget_rows(&catalog, table, group, open)?;
            }
        }
        self.clear_leavings(&catalog)
    }
}
