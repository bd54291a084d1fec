//! A replica on this node.

use std::sync::Arc;

use datum::KeyRange;
use log::PeerId;
use shard::Shard;
use storage::TableId;

/// A replica that is open here.
pub(crate) struct Hosted {
    pub(crate) shard: Arc<Shard>,
    pub(crate) table: TableId,
    pub(crate) range: KeyRange,
    pub(crate) own: PeerId,
}
