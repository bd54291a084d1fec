//! Mutants: deliberate faults, with which tests show that the simulation detects such faults.

use std::cell::Cell;

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// No fault.
    None,
    /// Responses that promise durability are sent before the fsync.
    AckBeforeFsync,
    /// The vote is not stored.
    ForgetVote,
    /// Some entries are applied twice.
    ApplyTwice,
    /// A linearizable read is not confirmed by a quorum.
    SkipReadIndex,
    /// The soft position advances although no other replica has the entries.
    SoftAlone,
    /// A replica whose applied entries were replaced continues with its rows.
    KeepVoidRows,
    /// A removed replica comes back with its old peer id.
    ReusePeer,
    /// A copy of the rows lacks the last row.
    DropRow,
    /// A removed replica continues to serve.
    ServeRemoved,
    /// A table is split so that the row at the split point belongs to neither side.
    SplitWrong,
    /// A new shard is opened before its predecessors have ended.
    OpenEarly,
    /// Rows become durable before their log.
    FlushUnsynced,
    /// Some changes are not passed to changefeeds.
    FeedDrop,
    /// Some changes are passed to changefeeds twice.
    FeedTwice,
    /// Changes are passed to changefeeds before reads show them.
    FeedEarly,
    /// The position of a changefeed is one change behind.
    FeedPosition,
    /// A changefeed begins with newer rows than those at its position.
    FeedSnapshot,
}

thread_local! {
    static ACTIVE: Cell<Mutant> = const { Cell::new(Mutant::None) };
}

/// Activates a fault on this thread.
pub fn set(mutant: Mutant) {
    ACTIVE.set(mutant);
}

/// Whether this fault is active on this thread.
#[must_use]
pub fn is_active(mutant: Mutant) -> bool {
    ACTIVE.get() == mutant
}
