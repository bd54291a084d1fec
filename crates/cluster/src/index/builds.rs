//! The builds of indexes that are under way on this node.

use std::collections::HashMap;

use io::Nanos;
use parking_lot::Mutex;
use shard::IndexId;
use storage::TableId;

/// When each build began.
#[derive(Default)]
pub(crate) struct Builds(Mutex<HashMap<(TableId, IndexId), Nanos>>);

impl Builds {
    /// Notes that exactly these builds are under way `now`.
    pub(crate) fn set_under_way(&self, builds: &[(TableId, IndexId)], now: Nanos) {
        let mut begun = self.0.lock();
        begun.retain(|build, _| builds.contains(build));
        for build in builds {
            begun.entry(*build).or_insert(now);
        }
    }

    /// When the build of an index began, if it is under way.
    pub(crate) fn begun(&self, table: TableId, index: IndexId) -> Option<Nanos> {
        self.0.lock().get(&(table, index)).copied()
    }
}
