//! Builds the indexes of a node's shards in the background: the steps, and the thread that takes them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use io::task::{self, Thread};
use io::{Clock, Nanos};
use log::GroupId;
use shard::{IndexBuild, IndexBuilder, IndexId, Shard};

use super::admin::Indexes;
use crate::catalog::Catalog;
use crate::events::Notifier;

/// The builds of a node. A node has one such value at a time.
pub struct IndexWork {
    indexes: Weak<Indexes>,
    clock: Arc<dyn Clock>,
    builders: HashMap<GroupId, IndexBuilder>,
}

/// The result of one step of all builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildStep {
    /// There are more rows to index.
    Rows {
        /// Whether clients write to the same shards.
        has_other_writers: bool,
    },
    /// Everything is built.
    Nothing,
    /// A build cannot continue at the moment.
    Stuck,
    /// The node has been dropped.
    NodeGone,
}

impl IndexWork {
    /// The builds of the node that has these `indexes`.
    #[must_use]
    pub fn new(indexes: &Arc<Indexes>, clock: Arc<dyn Clock>) -> IndexWork {
        IndexWork { indexes: Arc::downgrade(indexes), clock, builders: HashMap::new() }
    }

    /// One step of each shard that has an index to build: some hundred rows, fewer if there are other writers.
    pub fn step(&mut self) -> BuildStep {
        let Some(indexes) = self.indexes.upgrade() else { return BuildStep::NodeGone };
        let catalog = indexes.catalog().shown();
        let tables = catalog.tables().into_iter();
        let local = tables.flat_map(|table| table.shards()).filter_map(|shard| shard.local());
        // The leader makes the entries of an index; followers get them through the log.
        let led = local.filter(|shard| shard.is_leader());
        let unbuilt: Vec<&Arc<Shard>> = led.filter(|shard| !is_built(shard)).collect();
        self.builders.retain(|group, _| unbuilt.iter().any(|shard| shard.group() == *group));
        let mut stuck = false;
        for shard in &unbuilt {
            let new = || IndexBuilder::new(Arc::clone(shard));
            let builder = self.builders.entry(shard.group()).or_insert_with(new);
            if builder.step().is_err() {
                // The next builder begins where the last applied entry ended.
                self.builders.remove(&shard.group());
                stuck = true;
            }
        }
        note_builds(&indexes, &catalog, &unbuilt, self.clock.now());
        if unbuilt.is_empty() {
            return BuildStep::Nothing;
        }
        indexes.notify_change();
        if stuck {
            return BuildStep::Stuck;
        }
        BuildStep::Rows { has_other_writers: self.builders.values().any(IndexBuilder::has_other_writers) }
    }
}

/// Notes which builds are under way, for [`Indexes::build_started`].
fn note_builds(indexes: &Indexes, catalog: &Catalog, unbuilt: &[&Arc<Shard>], now: Nanos) {
    let mut builds = Vec::new();
    for table in catalog.tables().into_iter().filter(|_| !unbuilt.is_empty()) {
        for shard in
            unbuilt.iter().filter(|shard| table.config.shards.iter().any(|own| own.group == shard.group()))
        {
            builds.extend(unbuilt_indexes(shard).into_iter().map(|index| (table.config.id, index)));
        }
    }
    indexes.note_builds(&builds, now);
}

fn unbuilt_indexes(shard: &Shard) -> Vec<IndexId> {
    let ids = shard.indexes().iter().map(|index| index.id()).collect::<Vec<_>>();
    ids.into_iter().filter(|index| shard.index_build(*index) != IndexBuild::Ready).collect()
}

fn is_built(shard: &Shard) -> bool {
    unbuilt_indexes(shard).is_empty()
}

/// The longest interval between checks for an index to build.
const BUILD_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The wait after a step in which a build could not continue.
const STUCK_BUILD_BACKOFF: Duration = Duration::from_millis(200);
/// The longest wait after a step.
const STEP_PAUSE_MAX: Duration = Duration::from_millis(100);

/// A thread that builds the indexes of a node until this is dropped.
pub struct IndexThread {
    stopped: Arc<AtomicBool>,
    changes: Arc<Notifier>,
    thread: Option<Thread>,
}

impl IndexThread {
    /// Starts the thread. Fails if the system refuses a thread.
    pub fn start(indexes: &Arc<Indexes>, clock: Arc<dyn Clock>) -> std::io::Result<IndexThread> {
        let (mut work, stopped) = (IndexWork::new(indexes, clock), Arc::new(AtomicBool::new(false)));
        let changes = indexes.changes().clone();
        let (own_changes, own_stopped) = (changes.clone(), stopped.clone());
        let run = move || {
            while !own_stopped.load(Ordering::Acquire) {
                let (seen, begun) = (own_changes.seen(), task::now());
                match work.step() {
                    BuildStep::NodeGone => return,
                    BuildStep::Nothing => own_changes.wait(seen, BUILD_CHECK_INTERVAL),
                    BuildStep::Stuck => task::sleep(STUCK_BUILD_BACKOFF),
                    // Other writers get more than half of the time.
                    BuildStep::Rows { has_other_writers: true } => {
                        task::sleep((task::now() - begun).min(STEP_PAUSE_MAX));
                    }
                    BuildStep::Rows { has_other_writers: false } => {}
                }
            }
        };
        let thread = task::spawn("indexes", run)?;
        Ok(IndexThread { stopped, changes, thread: Some(thread) })
    }
}

impl Drop for IndexThread {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        self.changes.notify();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}
