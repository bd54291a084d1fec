//! How far a replica may be behind the end of its leader's log.
//!
//! A replica that keeps up with many writes is some hundred entries behind at any moment: they are on their way. So there is
//! no single distance; the cost of a mistake decides which one applies.

use log::{GroupStatus, Lsn, PeerId};

/// The purposes for which a replica must be near the end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lag {
    /// To be given a vote, or to lead. The group may wait for the replica from that moment on, and writers for all that it
    /// lacks: the nearest. A replica that is too far behind is looked at again soon.
    Vote,
    /// To be called ready by `table_status` and `wait`, and to found shards in a reshard. Nothing waits for the replica
    /// because of that, and one that votes and keeps up must not be reported as copying, or be left out, under many
    /// writes: farther.
    Ready,
    /// To be counted on when another replica is removed. It votes already; only a replica that needs a copy, or nearly,
    /// would keep the group waiting for long. If this were nearer, no replica could be removed under many writes: the
    /// farthest.
    Removal,
}

impl Lag {
    /// How many entries the replica may lack.
    pub(crate) fn entries(self) -> u64 {
        match self {
            Lag::Vote => 256,
            Lag::Ready => 1024,
            Lag::Removal => 4096,
        }
    }
}

/// Whether a replica responds, has rows, and is near enough to the end of the leader's log, by the leader's status.
pub(crate) fn is_within(status: &GroupStatus, peer: PeerId, lag: Lag) -> bool {
    peer == status.own
        || status.peers.iter().any(|known| {
            known.peer == peer
                && known.active
                && !known.needs_rows
                && known.matched > Lsn(0)
                && known.matched.0 + lag.entries() >= status.last.0
        })
}
