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
    /// Whether the rows stay the same while the catalog's version does.
    fn is_of_catalog(&self) -> bool;

    /// The rows now; `None` if they cannot be read.
    fn read(&self) -> Option<SystemTableRows>;

    /// Called with all rows, whenever they were read. Rows that are the same as before are in the same [`Arc`].
    fn observe(&self, rows: &Arc<SystemTableRows>);
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
        let mut last: Option<ReadRows> = None;
        loop {
            let Some(watchers) = self.watchers(table) else { return };
            // After the watchers were found, so that no watcher knows rows of a later version.
            let version = node.catalog_guard().version();
            last = read(&watchers, version, last);
            if let Some(ReadRows { rows, .. }) = &last {
                watchers.iter().for_each(|watcher| watcher.observe(rows));
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

/// Rows, and the version of the catalog before they were read.
struct ReadRows {
    version: u64,
    rows: Arc<SystemTableRows>,
}

/// The rows now; `None` if no watcher can read them. They are `last` if they have not changed: they are compared once
/// here, and not by each watcher.
fn read(watchers: &[Arc<dyn SystemWatcher>], version: u64, last: Option<ReadRows>) -> Option<ReadRows> {
    let is_current =
        |last: &ReadRows| last.version == version && watchers.iter().all(|watcher| watcher.is_of_catalog());
    if last.as_ref().is_some_and(is_current) {
        return last;
    }
    let rows = watchers.iter().find_map(|watcher| watcher.read())?;
    let same = last.map(|last| last.rows).filter(|last| **last == rows);
    Some(ReadRows { version, rows: same.unwrap_or_else(|| Arc::new(rows)) })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use datum::{Datum, Text};

    use super::*;

    struct Numbers {
        is_of_catalog: bool,
        reads: AtomicU32,
    }

    impl SystemWatcher for Numbers {
        fn is_of_catalog(&self) -> bool {
            self.is_of_catalog
        }

        /// A row that changes with each second reading.
        fn read(&self) -> Option<SystemTableRows> {
            let id = Datum::Number(f64::from(self.reads.fetch_add(1, Ordering::Relaxed) / 2));
            let key = PrimaryKey::encode(&id).ok()?;
            Some(SystemTableRows::from([(key, Object::from_iter([(Text::from_static("id"), id)]))]))
        }

        fn observe(&self, _rows: &Arc<SystemTableRows>) {}
    }

    fn watcher(is_of_catalog: bool) -> [Arc<dyn SystemWatcher>; 1] {
        [Arc::new(Numbers { is_of_catalog, reads: AtomicU32::new(0) })]
    }

    #[test]
    fn rows_that_have_not_changed_are_not_copied() {
        let watchers = watcher(false);
        let first = read(&watchers, 1, None).unwrap().rows;
        let second = read(&watchers, 1, Some(ReadRows { version: 1, rows: first.clone() })).unwrap().rows;
        assert!(Arc::ptr_eq(&first, &second));
        let third = read(&watchers, 1, Some(ReadRows { version: 1, rows: second })).unwrap().rows;
        assert!(first != third);
    }

    #[test]
    fn rows_of_the_catalog_are_read_once_for_each_version() {
        let watchers = watcher(true);
        let mut last = None;
        for (version, changes) in [(1, 0_u32), (1, 0), (1, 0), (2, 0), (2, 0), (3, 1)] {
            last = read(&watchers, version, last);
            let expected = PrimaryKey::encode(&Datum::Number(f64::from(changes))).unwrap();
            assert!(last.as_ref().unwrap().rows.contains_key(&expected), "version {version}");
        }
    }
}
