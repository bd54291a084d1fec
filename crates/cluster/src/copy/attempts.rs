//! Keeps copies away while the index entries of a table are deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use io::task;
use log::GroupId;
use shard::PresentRows;

use crate::locks::BriefMutex;

/// How often the end of running attempts is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The attempts to receive a copy that are running on this node.
#[derive(Default)]
pub(super) struct Attempts {
    state: BriefMutex<State>,
}

#[derive(Default)]
struct State {
    running: BTreeSet<GroupId>,
    /// The groups for which no attempt may begin.
    barred: BTreeSet<GroupId>,
    /// When the last attempt that was completed began, and what became of the rows before it.
    completed: BTreeMap<GroupId, (Instant, PresentRows)>,
}

/// A running attempt. It ends when this is dropped.
pub(super) struct Attempt<'a> {
    attempts: &'a Attempts,
    group: GroupId,
    begun: Instant,
}

impl Attempt<'_> {
    /// The copy is complete.
    pub(super) fn complete(&self, present: PresentRows) {
        self.attempts.state.lock().completed.insert(self.group, (self.begun, present));
    }
}

impl Attempts {
    /// Begins an attempt, of which a group has one at a time. `None` if none may begin now.
    pub(super) fn begin(&self, group: GroupId) -> Option<Attempt<'_>> {
        let mut state = self.state.lock();
        let may_begin = !state.barred.contains(&group) && state.running.insert(group);
        may_begin.then(|| Attempt { attempts: self, group, begun: task::now() })
    }

    /// Whether an attempt was completed that began after `time`; with [`PresentRows::Replaced`], one that kept no row.
    pub(super) fn completed_since(&self, group: GroupId, time: Instant, present: PresentRows) -> bool {
        let last = self.state.lock().completed.get(&group).copied();
        last.is_some_and(|(begun, was)| begun >= time && (present == PresentRows::Compared || was == present))
    }

    /// Calls `work` while no attempt of these groups is running. `None` if the node stops before that.
    pub(super) fn without<R>(
        &self,
        groups: &[GroupId],
        stopping: &AtomicBool,
        work: impl FnOnce() -> R,
    ) -> Option<R> {
        self.state.lock().barred.extend(groups);
        while !self.is_idle(groups) && !stopping.load(Ordering::Acquire) {
            task::sleep(POLL_INTERVAL);
        }
        let done = self.is_idle(groups).then(work);
        self.state.lock().barred.retain(|group| !groups.contains(group));
        done
    }

    fn is_idle(&self, groups: &[GroupId]) -> bool {
        let state = self.state.lock();
        groups.iter().all(|group| !state.running.contains(group))
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.attempts.state.lock().running.remove(&self.group);
    }
}
