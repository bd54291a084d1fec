//! Building the indexes of a node's shards, beside everything else: steps, and the thread that takes
//! them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use io::task::{self, Thread};
use log::GroupId;
use shard::{IndexBuild, IndexBuilder, IndexId, Shard};

use crate::news::Notifier;
use crate::node::Core;
use crate::{Catalog, Node};

/// The builds that are under way. One of a node at a time.
pub struct IndexWork {
    node: Weak<Core>,
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
    /// The builds of `node`.
    #[must_use]
    pub fn new(node: &Arc<Node>) -> IndexWork {
        IndexWork { node: Arc::downgrade(node.core()), builders: HashMap::new() }
    }

    /// One step for every shard that has something to build: some hundred rows of each, fewer beside other writers.
    pub fn step(&mut self) -> BuildStep {
        let Some(node) = self.node.upgrade() else { return BuildStep::NodeGone };
        let catalog = node.catalog();
        let tables = catalog.tables().into_iter();
        let near = tables.flat_map(|table| table.shards()).filter_map(|shard| shard.near());
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
        note_builds(&node, &catalog, &unbuilt);
        if unbuilt.is_empty() {
            return BuildStep::Nothing;
        }
        node.index_news.tell();
        if stuck {
            return BuildStep::Stuck;
        }
        BuildStep::Rows { in_company: self.builders.values().any(IndexBuilder::has_other_writers) }
    }
}

/// Notes which builds are under way, for those who ask since when.
fn note_builds(node: &Core, catalog: &Catalog, unbuilt: &[&Arc<Shard>]) {
    let mut builds = Vec::new();
    for table in catalog.tables().into_iter().filter(|_| !unbuilt.is_empty()) {
        for shard in
            unbuilt.iter().filter(|shard| table.config.shards.iter().any(|own| own.group == shard.group()))
        {
            builds.extend(unbuilt_indexes(shard).into_iter().map(|index| (table.config.id, index)));
        }
    }
    node.index_news.under_way(&builds, node.clock().now());
}

fn unbuilt_indexes(shard: &Shard) -> Vec<IndexId> {
    let ids = shard.indexes().iter().map(|index| index.id()).collect::<Vec<_>>();
    ids.into_iter().filter(|index| shard.index_build(*index) != IndexBuild::Ready).collect()
}

fn is_built(shard: &Shard) -> bool {
    unbuilt_indexes(shard).is_empty()
}

/// How long the thread waits at most before it looks again whether there is anything to do.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long it leaves a build alone that could not go on.
const PAUSE_STUCK: Duration = Duration::from_millis(200);
/// The longest pause after a step.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// A thread that builds the indexes of a node until this is dropped.
pub struct IndexThread {
    stopped: Arc<AtomicBool>,
    news: Arc<Notifier>,
    thread: Option<Thread>,
}

impl IndexThread {
    /// Starts it. Fails when the system has no thread to give.
    pub fn start(node: &Arc<Node>) -> std::io::Result<IndexThread> {
        let (mut work, news, stopped) =
            (IndexWork::new(node), node.index_news.clone(), Arc::new(AtomicBool::new(false)));
        let (own_news, own_stopped) = (news.clone(), stopped.clone());
        let run = move || {
            while !own_stopped.load(Ordering::Acquire) {
                let (seen, begun) = (own_news.seen(), task::now());
                match work.step() {
                    BuildStep::NodeGone => return,
                    BuildStep::Nothing => own_news.wait(seen, PATIENCE),
                    BuildStep::Stuck => task::sleep(PAUSE_STUCK),
                    // While others write they get more than half of the time.
                    BuildStep::Rows { in_company: true } => task::sleep((task::now() - begun).min(PAUSE_MAX)),
                    BuildStep::Rows { in_company: false } => {}
                }
            }
        };
        let thread = task::spawn("indexes", run)?;
        Ok(IndexThread { stopped, news, thread: Some(thread) })
    }
}

impl Drop for IndexThread {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        self.news.tell();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}
