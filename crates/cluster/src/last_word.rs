//! What a replica leaves behind is forgotten when it is durable in the log that it has gone. A full disk has no space for
//! that, and rows go on becoming durable: after a power loss a replica would be there that has lost what it had applied.
//! So that waits until there is space, and nothing comes in its place before.

use std::time::Duration;

use io::task;
use log::{GroupId, LogError};
use storage::TableId;

use crate::node::Core;
use crate::pending::Departed;
use crate::{AdminError, Catalog};

/// Between two attempts to say it.
const AGAIN: Duration = Duration::from_millis(500);

/// How a replica goes.
#[derive(Clone, Copy)]
pub(crate) enum Parting {
    /// Its group lives on elsewhere.
    Leaves,
    /// Its group ends everywhere.
    Closes,
}

impl Core {
    /// Ends a replica in the log. Whether that is durable, so that what it leaves behind may be forgotten; if not, this is
    /// to be asked again.
    pub(crate) fn end_in_log(&self, group: GroupId, parting: Parting) -> Result<bool, AdminError> {
        let ended = match parting {
            Parting::Leaves => self.log.leave_group(group),
            Parting::Closes => self.log.close_group(group),
        };
        match ended {
            Ok(()) | Err(LogError::Tombstone(_) | LogError::Removed { .. } | LogError::NotOpen(_)) => {
                Ok(true)
            }
            // A log that has failed says nothing any more: the next start finds what is left.
            Err(LogError::TombstonePending(_) | LogError::Stopped) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps in mind what is to be forgotten later.
    pub(crate) fn note_departed(&self, group: GroupId, departed: Departed) {
        let mut pending = task::lock(&self.pending);
        pending.departed.insert(group, departed);
        pending.last_words_at = Some(task::now());
    }

    /// Whether a replica of the group has gone from here and may not be forgotten yet.
    pub(crate) fn is_departing(&self, group: GroupId) -> bool {
        task::lock(&self.pending).departed.contains_key(&group)
    }

    /// Whether a replica of the table has gone from here and may not be forgotten yet: rows of the table may be its.
    pub(crate) fn has_departing(&self, table: TableId) -> bool {
        task::lock(&self.pending).departed.values().any(|departed| departed.table == table)
    }

    /// Forgets what those leave behind of whom there was space to say that they have gone.
    pub(crate) fn forget_departed(&self) -> Result<(), AdminError> {
        let groups: Vec<GroupId> = {
            let mut pending = task::lock(&self.pending);
            let now = task::now();
            if pending.departed.is_empty() || pending.last_words_at.is_some_and(|at| now < at + AGAIN) {
                return Ok(());
            }
            pending.last_words_at = Some(now);
            pending.departed.keys().copied().collect()
        };
        let _one_at_a_time = task::lock(&self.publishing);
        let catalog = self.catalog();
        let forgotten: Vec<_> = groups.iter().map(|group| self.forget_if_ended(&catalog, *group)).collect();
        self.clear_leavings(&catalog)?;
        forgotten.into_iter().collect()
    }

    fn forget_if_ended(&self, catalog: &Catalog, group: GroupId) -> Result<(), AdminError> {
        if !self.end_in_log(group, Parting::Leaves)? {
            return Ok(());
        }
        let Some(departed) = task::lock(&self.pending).departed.remove(&group) else { return Ok(()) };
        let forgotten = self.forget_rows(catalog, departed.table, group, departed.open.as_ref());
        if forgotten.is_err() {
            self.note_departed(group, departed);
        }
        forgotten
    }
}
