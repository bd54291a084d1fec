//! All shards of one engine, as the log sees them: what turns entries into rows.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use engine::Engine;
use log::{Applier, ApplyError, Entry as LogEntry, GroupId, LogSync, Lsn, Role};
use parking_lot::{Mutex, RwLock};
use storage::{Applied, Changes, FormatError, Store, TableId};

use crate::activity::Activity;
use crate::entry::Entry;
use crate::replica::{ApplyStep, Replica};

/// Applies the entries of every open shard over one engine, one engine batch per call.
///
/// Made first; the log is opened with it, then shards are opened with both.
pub struct Replicas {
    store: Arc<Store>,
    groups: RwLock<HashMap<GroupId, Arc<Replica>>>,
    on_seal_change: OnceLock<Box<dyn Fn(GroupId) + Send + Sync>>,
    activities: Mutex<HashMap<TableId, Arc<Activity>>>,
}

impl Replicas {
    /// No shard yet, over `engine`, whose format is checked (and set if it is empty).
    pub fn new(engine: Arc<dyn Engine>) -> Result<Arc<Replicas>, FormatError> {
        Replicas::with_row_cache(engine, 0)
    }

    /// As [`Replicas::new`], with `row_cache_bytes` for rows that were read lately.
    pub fn with_row_cache(
        engine: Arc<dyn Engine>,
        row_cache_bytes: usize,
    ) -> Result<Arc<Replicas>, FormatError> {
        let store = Store::open(engine, row_cache_bytes)?;
        let (groups, on_seal_change, activities) = (RwLock::default(), OnceLock::new(), Mutex::default());
        Ok(Arc::new(Replicas { store, groups, on_seal_change, activities }))
    }

    /// The store that the shards are in.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The engine below.
    #[must_use]
    pub fn engine(&self) -> &Arc<dyn Engine> {
        self.store.engine()
    }

    /// Calls `told` with a group whenever that was sealed or opened again here, on the log's thread: it must
    /// not wait. Only the first one is kept.
    pub fn on_seal_change(&self, told: Box<dyn Fn(GroupId) + Send + Sync>) {
        drop(self.on_seal_change.set(told));
    }

    /// What was read and written of a table here, whichever shards it had; `None` if it never had any here.
    #[must_use]
    pub fn activity(&self, table: TableId) -> Option<Arc<Activity>> {
        self.activities.lock().get(&table).cloned()
    }

    /// Where a new shard of the table counts.
    pub(crate) fn count_for(&self, table: TableId) -> Arc<Activity> {
        Arc::clone(self.activities.lock().entry(table).or_default())
    }

    /// The table is gone, and so are its figures.
    pub fn forget_table(&self, table: TableId) {
        self.activities.lock().remove(&table);
    }

    pub(crate) fn add(&self, replica: Arc<Replica>) {
        self.groups.write().insert(replica.group, replica);
    }

    /// Lets go of a shard whose group is closed: no entry of it will come any more.
    pub fn forget(&self, group: GroupId) {
        self.groups.write().remove(&group);
    }

    /// The log says what part the group's replica plays now.
    pub fn set_role(&self, group: GroupId, role: Role) {
        if let Some(replica) = self.groups.read().get(&group) {
            replica.set_role(role);
        }
    }

    /// The log says that the group's rows are void until they are replaced by a copy.
    pub fn mark_recovering(&self, group: GroupId) {
        if let Some(replica) = self.groups.read().get(&group) {
            replica.mark_recovering();
        }
    }

    fn find(&self, group: GroupId) -> Result<Arc<Replica>, ApplyError> {
        let found = self.groups.read().get(&group).cloned();
        found.ok_or_else(|| ApplyError(format!("group {group} has an entry but no shard")))
    }
}

impl Applier for Replicas {
    fn apply(&self, entries: &[LogEntry]) -> Result<(), ApplyError> {
        let mut run = ApplyBatch::default();
        for (group, lsn, bytes) in entries {
            let place = run.place(*group, |group| self.find(group))?;
            let (replica, step) = &mut run.groups[place];
            let damaged = |error| ApplyError(format!("group {group}, position {lsn}: {error}"));
            let entry = Entry::parse(bytes.clone()).map_err(damaged)?;
            replica.advance(step, &mut run.changes, *lsn, entry).map_err(damaged)?;
        }
        for (replica, step) in &mut run.groups {
            replica.record(step, &mut run.changes.batch);
        }
        self.store.write(run.changes).map_err(|error| ApplyError(error.to_string()))?;
        for (replica, step) in run.groups {
            if let (true, Some(told)) = (replica.finish(step), self.on_seal_change.get()) {
                told(replica.group);
            }
        }
        Ok(())
    }

    fn applied(&self, group: GroupId) -> Lsn {
        match self.groups.read().get(&group) {
            Some(replica) => replica.applied(),
            // Not open: what the engine would open it with.
            None => Applied::read(&**self.store.engine(), group).ok().flatten().unwrap_or_default().lsn,
        }
    }

    fn set_log_sync(&self, log: LogSync) {
        self.store.engine().set_pre_flush_hook(Arc::new(move || log.sync()));
    }

    fn flush(&self) -> Result<(), ApplyError> {
        self.store.engine().flush().map_err(|error| ApplyError(error.to_string()))
    }
}

/// One call of the log on its way into one engine batch.
#[derive(Default)]
struct ApplyBatch {
    changes: Changes,
    groups: Vec<(Arc<Replica>, ApplyStep)>,
    places: HashMap<GroupId, usize>,
}

impl ApplyBatch {
    /// Where `group` is in `groups`; it is added when it is met first.
    fn place(
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
        if let Some(place) = self.places.get(&group) {
            return Ok(*place);
        }
        let replica = find(group)?;
        let step = replica.begin();
        let place = self.groups.len();
        self.groups.push((replica, step));
        self.places.insert(group, place);
        Ok(place)
    }
}
