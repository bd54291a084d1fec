//! How far a replica is behind the end of its leader's log, and for what that is near enough.
//!
//! One that keeps up with many writes is some hundred entries behind at any moment: they are on their way. So
//! there is no one distance at which a replica "is there"; what a mistake costs says which one counts.

use log::{GroupStatus, Lsn, PeerId};

/// For what a replica is near enough to the end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// To be given a vote, or to lead. The group may wait for it from that moment on, writers of it for all that it
    /// lacks: the nearest. Who is too far at a moment is looked at again soon.
    Vote,
    /// To be called ready, by `table_status` and `wait`, and by whoever divides the table and looks for those who have
    /// everything. Nobody waits for it because of that, and one that votes and keeps up must not be said to copy
    /// rows, or be left out, because much is written: farther.
    Ready,
    /// To be counted on when another one leaves. It votes already; only one that needs a copy, or nearly, would
    /// keep the group waiting for long. If this were nearer nobody could leave while much is written: the
    /// farthest.
    Soon,
}

impl Reach {
    /// How many entries it may lack.
    pub(crate) fn entries(self) -> u64 {
        match self {
            Reach::Vote => 256,
            Reach::Ready => 1024,
            Reach::Soon => 4096,
        }
    }
}

/// Whether a replica answers, has rows, and is near enough to the end of the leader's log, as that one says.
pub(crate) fn reaches(status: &GroupStatus, peer: PeerId, reach: Reach) -> bool {
    peer == status.own
        || status.peers.iter().any(|known| {
            known.peer == peer
                && known.active
                && !known.needs_rows
                && known.matched > Lsn(0)
                && known.matched.0 + reach.entries() >= status.last.0
        })
}
