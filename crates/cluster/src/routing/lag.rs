//! How far a replica may lag behind the end of its leader's log.
//!
//! A replica that keeps up under many writes still lags by some hundred entries at any moment, because they are in
//! transit. So there is no single limit; it depends on the cost of a wrong decision.

use log::{GroupStatus, Lsn, PeerId};

/// The decisions that require a replica to be near the end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lag {
    /// The replica gets a vote, or becomes the leader. From then on the group may have to wait for the replica, and
    /// writes for all entries that it lacks. So this limit is the lowest. A replica that lags too far is checked again
    /// soon.
    Vote,
    /// `table_status` and `wait` report the replica as ready, or it founds shards in a reshard. Nothing waits for the
    /// replica because of that, and a voter that keeps up under many writes must neither be reported as copying nor be
    /// left out. So this limit is higher.
    Ready,
    /// The replica counts towards the quorum that remains when another replica is removed. It already votes; only a
    /// replica that needs a copy, or nearly does, would delay the group for long. With a lower limit, no replica could
    /// be removed under many writes. So this limit is the highest.
    Removal,
}

impl Lag {
    /// The number of entries that the replica may lack.
    pub(crate) fn entries(self) -> u64 {
        match self {
            Lag::Vote => 256,
            Lag::Ready => 1024,
            Lag::Removal => 4096,
        }
    }
}

/// Whether a replica responds, has its rows, and lags by no more than `lag`, according to the leader's status.
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
