//! A replica on this node.

use std::sync::Arc;

use datum::KeyRange;
use io::task;
use log::PeerId;
use parking_lot::{Mutex, MutexGuard};
use shard::Shard;
use storage::TableId;

/// A replica that is open here.
pub(crate) struct Hosted {
    pub(crate) shard: Arc<Shard>,
    pub(crate) table: TableId,
    pub(crate) range: KeyRange,
    pub(crate) own: PeerId,
    /// Whether a catalog shown here has named it. A node that starts again may hold replicas of later catalogs.
    pub(crate) is_named: bool,
    pub(crate) gate: Arc<Gate>,
}

/// Whoever puts rows of a copy in place does so inside, and whoever makes a copy looks at them inside; shut for good when
/// the replica is discarded, since the same keys may belong to another replica from then on.
#[derive(Default)]
pub(crate) struct Gate {
    is_shut: Mutex<bool>,
}

/// Keeps a gate from being shut.
pub(crate) struct Inside<'a>(#[expect(dead_code, reason = "held, not read")] MutexGuard<'a, bool>);

impl Gate {
    /// Enters, unless the gate is shut.
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        let is_shut = task::lock(&self.is_shut);
        (!*is_shut).then(|| Inside(is_shut))
    }

    /// Waits until nobody is inside, and lets nobody in any more.
    pub(crate) fn shut(&self) {
        *task::lock(&self.is_shut) = true;
    }
}
