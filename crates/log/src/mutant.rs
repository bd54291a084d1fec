//! Faults that tests plant, to show that the simulation would notice them.

use std::cell::Cell;

/// What is done wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Nothing is.
    None,
    /// Answers that promise durability leave before the fsync.
    AckBeforeFsync,
    /// The vote is not written down.
    ForgetVote,
    /// Some entries are applied twice.
    ApplyTwice,
    /// A linearizable read is not confirmed by a majority.
    SkipReadIndex,
    /// A soft position is believed although nobody has the entries.
    SoftAlone,
    /// A replica whose applied entries were replaced goes on with its rows.
    KeepVoidRows,
    /// A replica that was removed comes back under its old peer id.
    ReusePeer,
    /// A copy of the rows lacks the last row.
    DropRow,
    /// A replica that was removed goes on as it was.
    ServeRemoved,
    /// A table is cut such that the row at the cut belongs to neither side.
    SplitWrong,
    /// A new shard begins here before the ones before it have come to their end.
    OpenEarly,
    /// Rows become durable before the log that they come from.
    FlushUnsynced,
}

thread_local! {
    static ACTIVE: Cell<Mutant> = const { Cell::new(Mutant::None) };
}

/// Plants a fault on this thread.
pub fn set(mutant: Mutant) {
    ACTIVE.set(mutant);
}

/// Whether this fault is planted.
#[must_use]
pub fn is_active(mutant: Mutant) -> bool {
    ACTIVE.get() == mutant
}
