//! The builds of indexes that are under way on this node.

use std::collections::HashMap;

use io::Nanos;
use shard::IndexId;
use storage::TableId;

use crate::locks::BriefMutex;

/// The start of each build.
#[derive(Default)]
pub(crate) struct Builds(BriefMutex<HashMap<(TableId, IndexId), Nanos>>);

impl Builds {
    /// Notes that exactly these builds are under way `now`.
    pub(crate) fn set_under_way(&self, builds: &[(TableId, IndexId)], now: Nanos) {
        let mut started = self.0.lock();
        started.retain(|build, _| builds.contains(build));
        for build in builds {
            started.entry(*build).or_insert(now);
        }
    }

    /// The start of the build of an index, if it is under way.
    pub(crate) fn started(&self, table: TableId, index: IndexId) -> Option<Nanos> {
        self.0.lock().get(&(table, index)).copied()
    }
}
