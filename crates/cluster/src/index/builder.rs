//! Building the indexes of a node's shards, beside everything else: steps, and the thread that takes
//! them.

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
use crate::notifier::Notifier;

/// The builds that are under way. One of a node at a time.
pub struct IndexWork {
    indexes: Weak<Indexes>,
    clock: Arc<dyn Clock>,
    builders: HashMap<GroupId, IndexBuilder>,
}

/// What a step of all builds found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildStep {
    /// Rows to look at; and whether others write to the same shards.
    Rows {
        /// Whether others do.
        in_company: bool,
    },
    /// Everything is built.
    Nothing,
    /// A build cannot go on at the moment.
    Stuck,
    /// The node is no more.
    NodeGone,
}

impl IndexWork {
    /// The builds of the node that has these `indexes`.
    #[must_use]
    pub fn new(indexes: &Arc<Indexes>, clock: Arc<dyn Clock>) -> IndexWork {
        IndexWork { indexes: Arc::downgrade(indexes), clock, builders: HashMap::new() }
    }

    /// One step for every shard that has something to build: some hundred rows of each, fewer beside other writers.
    pub fn step(&mut self) -> BuildStep {
        let Some(indexes) = self.indexes.upgrade() else { return BuildStep::NodeGone };
        let catalog = indexes.catalog().shown();
        let tables = catalog.tables().into_iter();
        let near = tables.flat_map(|table| table.shards()).filter_map(|shard| shard.local());
        // The entries of an index are made by the leader; the others get them through the log.
        let near = near.filter(|shard| shard.is_leader());
        let unbuilt: Vec<&Arc<Shard>> = near.filter(|shard| !is_built(shard)).collect();
        self.builders.retain(|group, _| unbuilt.iter().any(|shard| shard.group() == *group));
        let mut stuck = false;
        for shard in &unbuilt {
            let new = || IndexBuilder::new(Arc::clone(shard));
            let builder = self.builders.entry(shard.group()).or_insert_with(new);
            if builder.step().is_err() {
                // Another one begins where the last entry that was applied ended.
                self.builders.remove(&shard.group());
                stuck = true;
            }
        }
        note_builds(&indexes, &catalog, &unbuilt, self.clock.now());
        if unbuilt.is_empty() {
            return BuildStep::Nothing;
        }
        indexes.changes.notify();
        if stuck {
            return BuildStep::Stuck;
        }
        BuildStep::Rows { in_company: self.builders.values().any(IndexBuilder::has_other_writers) }
    }
}

/// Notes which builds are under way, for those who ask since when.
fn note_builds(indexes: &Indexes, catalog: &Catalog, unbuilt: &[&Arc<Shard>], now: Nanos) {
    let mut builds = Vec::new();
    for table in catalog.tables().into_iter().filter(|_| !unbuilt.is_empty()) {
        for shard in
            unbuilt.iter().filter(|shard| table.config.shards.iter().any(|own| own.group == shard.group()))
        {
            builds.extend(unbuilt_indexes(shard).into_iter().map(|index| (table.config.id, index)));
        }
    }
    indexes.builds.set_under_way(&builds, now);
}

fn unbuilt_indexes(shard: &Shard) -> Vec<IndexId> {
    let ids = shard.indexes().iter().map(|index| index.id()).collect::<Vec<_>>();
    ids.into_iter().filter(|index| shard.index_build(*index) != IndexBuild::Ready).collect()
}

fn is_built(shard: &Shard) -> bool {
    unbuilt_indexes(shard).is_empty()
}

/// The longest wait between two checks for something to build.
const BUILD_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a build that could not go on is left alone.
const STUCK_BUILD_BACKOFF: Duration = Duration::from_millis(200);
/// The longest pause after a step.
const STEP_PAUSE_MAX: Duration = Duration::from_millis(100);

/// A thread that builds the indexes of a node until this is dropped.
pub struct IndexThread {
    stopped: Arc<AtomicBool>,
    changes: Arc<Notifier>,
    thread: Option<Thread>,
}

impl IndexThread {
    /// Starts the thread. Fails when the system has no thread to give.
    pub fn start(indexes: &Arc<Indexes>, clock: Arc<dyn Clock>) -> std::io::Result<IndexThread> {
        let (mut work, stopped) = (IndexWork::new(indexes, clock), Arc::new(AtomicBool::new(false)));
        let changes = indexes.changes.clone();
        let (own_changes, own_stopped) = (changes.clone(), stopped.clone());
        let run = move || {
            while !own_stopped.load(Ordering::Acquire) {
                let (seen, begun) = (own_changes.seen(), task::now());
                match work.step() {
                    BuildStep::NodeGone => return,
                    BuildStep::Nothing => own_changes.wait(seen, BUILD_CHECK_INTERVAL),
                    BuildStep::Stuck => task::sleep(STUCK_BUILD_BACKOFF),
                    // Other writers get more than half of the time.
                    BuildStep::Rows { in_company: true } => {
                        task::sleep((task::now() - begun).min(STEP_PAUSE_MAX));
                    }
                    BuildStep::Rows { in_company: false } => {}
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
