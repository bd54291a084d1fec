//! Reads system tables for changefeeds, again and again: their rows have no history.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::Node;
use datum::{Object, PrimaryKey};
use io::task;
use parking_lot::Mutex;

/// How often a table is read while the catalog does not change.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// A table, and whether its rows hold ids instead of names.
pub(crate) type WatchedTable = (&'static str, bool);

pub(crate) type SystemTableRows = BTreeMap<PrimaryKey, Object>;

/// A feed of a system table.
pub(crate) trait SystemWatcher: Send + Sync {
    /// The rows now; `None` if they cannot be read.
    fn read(&self) -> Option<SystemTableRows>;

    /// Called with all rows, whenever they were read. They may be the same as before.
    fn observe(&self, rows: &SystemTableRows);
}

/// The feeds of system tables. Each table with feeds has a thread, which reads it once for all of them: when the catalog
/// has changed, and each second.
#[derive(Default)]
pub(crate) struct SystemWatches(Mutex<HashMap<WatchedTable, Vec<Weak<dyn SystemWatcher>>>>);

impl SystemWatches {
    /// Calls `watcher` until it is dropped. Fails if no thread can be started.
    pub fn add(
        self: &Arc<Self>,
        node: &Arc<Node>,
        table: WatchedTable,
        watcher: &Arc<impl SystemWatcher + 'static>,
    ) -> std::io::Result<()> {
        let watcher: Weak<dyn SystemWatcher> = Arc::downgrade(&(watcher.clone() as Arc<dyn SystemWatcher>));
        let mut watches = self.0.lock();
        if let Some(watchers) = watches.get_mut(&table) {
            watchers.push(watcher);
            return Ok(());
        }
        let (here, node) = (self.clone(), node.clone());
        task::spawn("system-feeds", move || here.run(&node, table))?;
        watches.insert(table, vec![watcher]);
        Ok(())
    }

    /// Reads one table while it has watchers.
    fn run(&self, node: &Node, table: WatchedTable) {
        loop {
            let version = node.catalog_guard().version();
            let Some(watchers) = self.watchers(table) else { return };
            if let Some(rows) = watchers.iter().find_map(|watcher| watcher.read()) {
                watchers.iter().for_each(|watcher| watcher.observe(&rows));
            }
            drop(watchers);
            node.await_catalog_version(version + 1, READ_INTERVAL);
        }
    }

    /// The watchers of a table; `None`, from now on, if it has none.
    fn watchers(&self, table: WatchedTable) -> Option<Vec<Arc<dyn SystemWatcher>>> {
        let mut watches = self.0.lock();
        let watchers = watches.get_mut(&table)?;
        watchers.retain(|watcher| watcher.strong_count() > 0);
        let found: Vec<_> = watchers.iter().filter_map(Weak::upgrade).collect();
        if found.is_empty() {
            watches.remove(&table);
            return None;
        }
        Some(found)
    }
}
