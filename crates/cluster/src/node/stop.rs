//! Transfers leadership to other servers before a node stops.

use std::sync::atomic::Ordering;
use std::time::Duration;

use io::task;
use log::GroupId;

use super::core::Core;
use crate::config::CATALOG_GROUP;

/// The wait between two checks whether other replicas lead.
const TRANSFER_CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl Core {
    /// Transfers the leadership of all groups that this node leads, because the node is to stop. Waits until other replicas
    /// lead, `timeout` at most.
    pub fn hand_over(&self, timeout: Duration) {
        let deadline = task::now() + timeout;
        self.stopping.store(true, Ordering::Release);
        loop {
            let mut groups: Vec<GroupId> = self.local.lock().keys().copied().collect();
            groups.push(CATALOG_GROUP);
            let mut waits = false;
            for group in groups {
                if !self.local.shard_of(group).is_some_and(|shard| shard.is_leader()) {
                    continue;
                }
                let Ok(status) = self.log.group_status(group) else { continue };
                let successors = status
                    .peers
                    .iter()
                    .filter(|peer| peer.active && !peer.needs_rows)
                    .filter(|peer| status.members.voters.contains(&peer.peer));
                if let Some(successor) = successors.max_by_key(|peer| peer.matched) {
                    waits = true;
                    self.log.transfer(group, successor.peer);
                }
            }
            if !waits || task::now() > deadline {
                return;
            }
            task::sleep(TRANSFER_CHECK_INTERVAL);
        }
    }
}
