//! Before the shards of a table are replaced by others, the server that does so becomes the only member of
//! their groups: nobody else can be elected in one of them then, and nothing is acknowledged there that
//! the new shards do not have. Whoever was a member gets the rows of the new shards as a copy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use io::task;
use log::{GroupId, GroupStatus, MemberChange, Role};
use storage::TableId;

use crate::AdminError;
use crate::catalog_row::CatalogRow;
use crate::divided::{Alone, Division};
use crate::node::Core;

/// How long the other members of one group may take to be removed.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

impl Core {
    /// Makes the replicas here, which lead, the only members of `groups`. They stay that for as long as what
    /// is returned is kept; afterwards the groups get their members again, as new replicas.
    pub(crate) fn become_sole(&self, groups: Vec<GroupId>) -> Result<Alone, AdminError> {
        // Waits for a step that is being taken.
        task::lock(&self.left_alone).extend(&groups);
        let alone = Alone { groups, left_alone: Arc::clone(&self.left_alone) };
        for group in &alone.groups {
            let deadline = task::now() + PATIENCE;
            while self.remove_other(*group, deadline)? {}
        }
        Ok(alone)
    }

    /// Removes one other member of a group; false when there is none.
    fn remove_other(&self, group: GroupId, deadline: Instant) -> Result<bool, AdminError> {
        let shard = self.shard_of(group).ok_or(AdminError::NotTogether)?;
        // A change that somebody proposed before is made now, or will never be.
        shard.sync().wait()?;
        let status = self.heard(self.log.group_status(group)?);
        if !matches!(status.role, Role::Leader { .. }) || task::now() > deadline {
            return Err(AdminError::NotTogether);
        }
        let members = &status.members;
        let others =
            members.voters.iter().chain(&members.learners).copied().filter(|peer| *peer != status.own);
        // Those who do not answer first: what is left needs a majority.
        let Some(other) = others.min_by_key(|peer| answers(&status, *peer)) else { return Ok(false) };
        if !self.change_members(group, MemberChange::Remove(other)) {
            task::sleep(PAUSE);
        }
        Ok(true)
    }

    /// Takes note of a division of which nobody knows whether the catalog has it.
    pub(crate) fn remember_unsettled(&self, table: TableId, division: Division) {
        task::lock(&self.unsettled).push((table, division));
    }

    /// Finds out what became of divisions. One that was not made is undone, once it is certain that it
    /// comes too late.
    pub(crate) fn settle_divisions(&self) {
        let unsettled = std::mem::take(&mut *task::lock(&self.unsettled));
        for (table, division) in unsettled {
            let is_there = self.change(|catalog, draft| {
                let Some(handle) = catalog.table_by_id(table) else { return Ok(false) };
                // The catalog has a later version then: no change of the present one can be made any more.
                draft.put(CatalogRow::Table(handle.config.clone()));
                Ok(handle.config.shards.iter().any(|shard| division.has(shard.group)))
            });
            match is_there {
                Ok(true) => division.undo(),
                Ok(false) => {}
                Err(_) => self.remember_unsettled(table, division),
            }
        }
    }
}

fn answers(status: &GroupStatus, peer: log::PeerId) -> bool {
    status.peers.iter().any(|known| known.peer == peer && known.active)
}
