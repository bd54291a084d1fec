//! What of this node's new shards is still to be done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use log::{GroupId, PeerId};
use storage::TableId;

use crate::hosted::Hosted;

/// A replica of this server that has left its group for good, and was named when it was to be opened.
#[derive(Clone, Copy)]
pub(crate) struct Gone {
    pub(crate) table: TableId,
    pub(crate) peer: PeerId,
    pub(crate) since: Instant,
}

/// A replica that has gone, and what it leaves behind.
pub(crate) struct Departed {
    pub(crate) table: TableId,
    /// What was open, if its rows go with it.
    pub(crate) open: Option<Hosted>,
}

/// Replicas that come after others.
#[derive(Default)]
pub(crate) struct Pending {
    /// Tables with replicas that cannot be opened yet, and since when.
    pub(crate) put_off: BTreeMap<TableId, Instant>,
    /// New groups that this server founds and that may have no leader yet, and since when.
    pub(crate) starting: BTreeMap<GroupId, Instant>,
    /// New groups that begin here without their rows, because the ones before do not come to their end here.
    pub(crate) heirs: BTreeSet<GroupId>,
    /// Replicas that the catalog names and that can never be opened.
    pub(crate) gone: BTreeMap<GroupId, Gone>,
    /// Replicas that are gone from here, of which the log has no space to say so.
    pub(crate) departed: BTreeMap<GroupId, Departed>,
    /// When it was tried last to say so.
    pub(crate) last_words_at: Option<Instant>,
}

impl Pending {
    /// Whether it must be looked at soon.
    pub(crate) fn is_busy(&self) -> bool {
        !self.put_off.is_empty() || !self.starting.is_empty()
    }
}
