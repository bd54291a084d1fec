//! Switches the histories of the groups that this node leads on when a feed needs them, and off when none has for long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io::task;
use log::GroupId;
use shard::{HistoryPosition, Shard};

use crate::locks::{BriefMutex, Rank, RankedMutex};
use crate::routing::LocalReplicas;

/// How long the log may take for a switch.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(5);

/// When the histories of groups were last needed.
pub(crate) struct HistoryUse {
    local: Arc<LocalReplicas>,
    /// How long a history stays on after its last use.
    keep: Duration,
    /// Held while a history is switched. The holder waits for the log.
    switching: RankedMutex<()>,
    /// `None` while a history is being switched off.
    used: BriefMutex<HashMap<GroupId, Option<Instant>>>,
}

impl HistoryUse {
    pub(crate) fn new(local: Arc<LocalReplicas>, keep: Duration) -> HistoryUse {
        HistoryUse {
            local,
            keep,
            switching: RankedMutex::new(Rank::HistorySwitch, ()),
            used: BriefMutex::default(),
        }
    }

    /// The end of the history of a group that this node leads, which is switched on if it is off. Every change that a read
    /// has shown before the call is before this position, and every later one is in the history after it. Fails with the
    /// reason for another server.
    pub(crate) fn begin(&self, group: GroupId) -> Result<HistoryPosition, String> {
        let shard = self.local.shard_of(group).ok_or("this server has no replica of the group")?;
        if !shard.is_leader() {
            return Err("this server does not lead the group".to_owned());
        }
        if shard.seal_state().is_sealed() {
            return Err("the group is sealed".to_owned());
        }
        if let Some(end) = self.end_in_use(group, &shard) {
            return Ok(end);
        }
        let _switching = self.switching.lock();
        if let Some(end) = self.end_in_use(group, &shard) {
            return Ok(end);
        }
        match shard.switch_history_on().wait_for(SWITCH_TIMEOUT) {
            // Also if it was to be switched off before, and the outcome of that is not known: this entry is later.
            Ok(Ok(_)) => _ = self.used.lock().insert(group, Some(task::now())),
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("the log did not take the entry in time".to_owned()),
        }
        self.end_in_use(group, &shard).ok_or_else(|| "the history was switched off again".to_owned())
    }

    /// The end of the history of a group that this node leads, if it is on. Does not wait.
    pub(crate) fn end(&self, group: GroupId) -> Option<HistoryPosition> {
        let leads = |shard: &Arc<Shard>| shard.is_leader() && !shard.seal_state().is_sealed();
        let shard = self.local.shard_of(group).filter(leads)?;
        self.end_in_use(group, &shard)
    }

    /// The end of a history that is on, and is not being switched off. Notes that it is used.
    fn end_in_use(&self, group: GroupId, shard: &Shard) -> Option<HistoryPosition> {
        let mut used = self.used.lock();
        shard.history_end()?;
        let now = Some(task::now());
        let last_use = used.entry(group).or_insert(now);
        (*last_use)?;
        *last_use = now;
        drop(used);
        // Rows that were read may be those of an entry that does not count as applied yet.
        shard.shown_history_end().ok().flatten()
    }

    /// Notes that the history of a group is used, unless it is being switched off.
    pub(crate) fn note(&self, group: GroupId) {
        if let Some(Some(last_use)) = self.used.lock().get_mut(&group) {
            *last_use = task::now();
        }
    }

    /// Switches off the histories that have not been used for long.
    pub(crate) fn tick(&self) {
        let unused = self.led_with_history();
        if unused.is_empty() {
            return;
        }
        let _switching = self.switching.lock();
        for (group, shard) in unused {
            if self.mark_unused(group)
                && let Ok(Ok(_)) = shard.switch_history_off().wait_for(SWITCH_TIMEOUT)
            {
                self.used.lock().remove(&group);
            }
        }
    }

    /// Notes that the history of a group is being switched off, if it has not been used for long.
    fn mark_unused(&self, group: GroupId) -> bool {
        let mut used = self.used.lock();
        let now = task::now();
        // A leader does not know how it was used before its term.
        let last_use = used.entry(group).or_insert(Some(now));
        let is_unused = last_use.is_none_or(|last_use| now - last_use > self.keep);
        if is_unused {
            *last_use = None;
        }
        is_unused
    }

    fn led_with_history(&self) -> Vec<(GroupId, Arc<Shard>)> {
        let open = self.local.lock();
        let led = open.iter().filter(|(_, replica)| replica.shard.leads() && replica.shard.has_history());
        led.map(|(group, replica)| (*group, replica.shard.clone())).collect()
    }
}
