//! All shards of one engine, as the log sees them: applies entries to rows.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use engine::Engine;
use log::{Applier, ApplyError, Entry as LogEntry, GroupId, LogSync, Lsn, Role};
use parking_lot::{Mutex, RwLock};
use storage::{Applied, Changes, FormatError, Store, TableId};

use crate::activity::Activity;
use crate::entry::Entry;
use crate::history::HistoryListener;
use crate::replica::{ApplyStep, Replica};

/// Applies the entries of every open shard over one engine, in one engine batch per call.
///
/// Created first; the log is opened with it, and shards are opened with both.
pub struct Replicas {
    store: Arc<Store>,
    groups: RwLock<HashMap<GroupId, Arc<Replica>>>,
    on_seal_change: OnceLock<Box<dyn Fn(GroupId) + Send + Sync>>,
    history_listener: OnceLock<Arc<dyn HistoryListener>>,
    activities: Mutex<HashMap<TableId, Arc<Activity>>>,
}

impl Replicas {
    /// Creates it without shards, over `engine`. Checks the engine's format, or sets it if the engine is empty.
    pub fn new(engine: Arc<dyn Engine>) -> Result<Arc<Replicas>, FormatError> {
        Replicas::with_row_cache(engine, 0)
    }

    /// As [`Replicas::new`], with `row_cache_bytes` for a cache of rows.
    pub fn with_row_cache(
        engine: Arc<dyn Engine>,
        row_cache_bytes: usize,
    ) -> Result<Arc<Replicas>, FormatError> {
        let store = Store::open(engine, row_cache_bytes)?;
        Ok(Arc::new(Replicas {
            store,
            groups: RwLock::default(),
            on_seal_change: OnceLock::new(),
            history_listener: OnceLock::new(),
            activities: Mutex::default(),
        }))
    }

    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    #[must_use]
    pub fn engine(&self) -> &Arc<dyn Engine> {
        self.store.engine()
    }

    /// Calls `listener` with a group whenever its seal state changes here. The call is on the log's thread and must not
    /// block. Only the first listener is kept.
    pub fn on_seal_change(&self, listener: Box<dyn Fn(GroupId) + Send + Sync>) {
        drop(self.on_seal_change.set(listener));
    }

    /// Sets the receiver of the histories of all groups. Only the first listener is kept.
    pub fn set_history_listener(&self, listener: Arc<dyn HistoryListener>) {
        drop(self.history_listener.set(listener));
    }

    fn interrupt_history(&self, group: GroupId) {
        self.history_listener.get().into_iter().for_each(|listener| listener.interrupted(group));
    }

    /// The counters of reads and writes of a table here, over all its shards so far; `None` if it never had a shard
    /// here.
    #[must_use]
    pub fn activity(&self, table: TableId) -> Option<Arc<Activity>> {
        self.activities.lock().get(&table).cloned()
    }

    /// The counters for a new shard of the table.
    pub(crate) fn count_for(&self, table: TableId) -> Arc<Activity> {
        Arc::clone(self.activities.lock().entry(table).or_default())
    }

    /// Drops the counters of a removed table.
    pub fn forget_table(&self, table: TableId) {
        self.activities.lock().remove(&table);
    }

    pub(crate) fn add(&self, replica: Arc<Replica>) {
        self.groups.write().insert(replica.group, replica);
    }

    /// Drops a shard whose group is closed: no more entries of it will be applied.
    pub fn forget(&self, group: GroupId) {
        self.groups.write().remove(&group);
        self.interrupt_history(group);
    }

    /// Sets the role of the group's replica, which the log reports.
    pub fn set_role(&self, group: GroupId, role: Role) {
        if let Some(replica) = self.groups.read().get(&group) {
            replica.set_role(role);
        }
    }

    /// Marks the group's rows as unusable until they are replaced by a copy. The log reports this.
    pub fn mark_recovering(&self, group: GroupId) {
        if let Some(replica) = self.groups.read().get(&group) {
            replica.mark_recovering();
        }
        self.interrupt_history(group);
    }

    /// Passes entries to the history listener before reads show their rows, if the mutant is active.
    #[cfg(feature = "mutants")]
    fn publish_early(&self, groups: &[(Arc<Replica>, ApplyStep)]) {
        if !log::mutant::is_active(log::mutant::Mutant::FeedEarly) {
            return;
        }
        let Some(listener) = self.history_listener.get() else { return };
        for (replica, step) in groups.iter().filter(|(_, step)| !step.recorded.is_empty()) {
            listener.recorded(replica.group, step.recorded.clone());
            io::task::sleep(std::time::Duration::from_millis(2));
        }
    }

    fn find(&self, group: GroupId) -> Result<Arc<Replica>, ApplyError> {
        let found = self.groups.read().get(&group).cloned();
        found.ok_or_else(|| ApplyError(format!("group {group} has an entry but no shard")))
    }
}

impl Applier for Replicas {
    fn apply(&self, entries: &[LogEntry]) -> Result<(), ApplyError> {
        let mut batch = ApplyBatch::default();
        for LogEntry { group, lsn, payload } in entries {
            let index = batch.group_index(*group, |group| self.find(group))?;
            let (_, step) = &mut batch.groups[index];
            let damaged = |error| ApplyError(format!("group {group}, position {lsn}: {error}"));
            let entry = Entry::parse(payload.clone()).map_err(damaged)?;
            step.advance(&mut batch.changes, *lsn, entry, payload).map_err(damaged)?;
        }
        for (_, step) in &mut batch.groups {
            step.put_records(&mut batch.changes.batch);
        }
        #[cfg(feature = "mutants")]
        self.publish_early(&batch.groups);
        self.store.write(batch.changes).map_err(|error| ApplyError(error.to_string()))?;
        for (replica, step) in batch.groups {
            let finished = replica.finish(step);
            if let (true, Some(listener)) = (finished.seal_changed, self.on_seal_change.get()) {
                listener(replica.group);
            }
            if let (false, Some(listener)) = (finished.recorded.is_empty(), self.history_listener.get()) {
                listener.recorded(replica.group, finished.recorded);
            }
        }
        Ok(())
    }

    fn applied(&self, group: GroupId) -> Lsn {
        match self.groups.read().get(&group) {
            Some(replica) => replica.applied(),
            // The group is not open: its replica would be opened with the position in the engine.
            None => Applied::read(&**self.store.engine(), group).ok().flatten().unwrap_or_default().lsn,
        }
    }

    fn durable(&self, groups: &[GroupId]) -> Vec<Lsn> {
        // Of a damaged record nothing is known.
        let applied = |group| Applied::read_durable(&**self.store.engine(), group).ok().flatten();
        groups.iter().map(|group| applied(*group).unwrap_or_default().lsn).collect()
    }

    fn set_log_sync(&self, log: LogSync) {
        self.store.engine().set_pre_flush_hook(Arc::new(move || log.sync()));
    }

    fn flush(&self) -> Result<(), ApplyError> {
        self.store.engine().flush().map_err(|error| ApplyError(error.to_string()))
    }
}

/// The entries of one call of the log, collected for one engine batch.
#[derive(Default)]
struct ApplyBatch {
    changes: Changes,
    groups: Vec<(Arc<Replica>, ApplyStep)>,
    indexes: HashMap<GroupId, usize>,
}

impl ApplyBatch {
    /// The index of `group` in `groups`; adds it on first use.
    fn group_index(
        &mut self,
        group: GroupId,
        find: impl FnOnce(GroupId) -> Result<Arc<Replica>, ApplyError>,
    ) -> Result<usize, ApplyError> {
        // Nearly every call concerns one group.
        if let [(only, _)] = &self.groups[..]
            && only.group == group
        {
            return Ok(0);
        }
        if let Some(index) = self.indexes.get(&group) {
            return Ok(*index);
        }
        let replica = find(group)?;
        let step = replica.begin();
        let index = self.groups.len();
        self.groups.push((replica, step));
        self.indexes.insert(group, index);
        Ok(index)
    }
}
