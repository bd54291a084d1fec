//! Mutants, and the invariants that each concerns: a mutant that breaks only another invariant is not detected.

use log::mutant::{self, Mutant};

use crate::invariant::Invariant;
use crate::run::{Failure, run};
use crate::world::RunOptions;

/// The invariants that each mutant concerns.
pub const MUTANTS: [(&str, Mutant, &[Invariant]); 16] = [
    // An acknowledged write is lost.
    ("ack-before-fsync", Mutant::AckBeforeFsync, &[Invariant::Answers]),
    ("forget-vote", Mutant::ForgetVote, &[Invariant::Leads]),
    ("apply-twice", Mutant::ApplyTwice, &[Invariant::Answers, Invariant::Same]),
    // A read without confirmation by a quorum is stale.
    ("skip-read-index", Mutant::SkipReadIndex, &[Invariant::Answers]),
    // A replica that returns is taken for an earlier one with more entries.
    ("reuse-peer", Mutant::ReusePeer, &[Invariant::Answers, Invariant::Same, Invariant::Settles]),
    ("drop-row", Mutant::DropRow, &[Invariant::Answers, Invariant::Same]),
    ("serve-removed", Mutant::ServeRemoved, &[Invariant::Answers, Invariant::Same]),
    ("keep-void-rows", Mutant::KeepVoidRows, &[Invariant::Same]),
    // Entries that its predecessors still apply overwrite its rows.
    ("open-too-early", Mutant::OpenEarly, &[Invariant::Answers, Invariant::Same]),
    // After a power loss there are rows of entries that are in no log.
    ("flush-unsynced", Mutant::FlushUnsynced, &[Invariant::Follows]),
    ("feed-drops", Mutant::FeedDrop, &[Invariant::Feeds]),
    ("feed-repeats", Mutant::FeedTwice, &[Invariant::Feeds]),
    ("feed-too-early", Mutant::FeedEarly, &[Invariant::Feeds]),
    // A feed that is resumed repeats a change.
    ("feed-position-behind", Mutant::FeedPosition, &[Invariant::Feeds]),
    ("feed-snapshot-newer", Mutant::FeedSnapshot, &[Invariant::Feeds]),
    // The row at the split point belongs to no shard.
    ("split-at-wrong-key", Mutant::SplitWrong, &[Invariant::Answers, Invariant::Same, Invariant::Settles]),
];

/// The result of a search for a mutant.
pub struct SearchResult {
    /// The seed that broke an invariant that the mutant concerns.
    pub failure: Option<Failure>,
    /// The number of earlier seeds that broke another invariant.
    pub others: u64,
}

/// Runs `seeds` with a mutant until one detects it.
pub fn find(
    mutant: Mutant,
    invariants: &[Invariant],
    seeds: std::ops::Range<u64>,
    options: RunOptions,
) -> SearchResult {
    mutant::set(mutant);
    let mut others = 0;
    let failure = seeds.into_iter().find_map(|seed| {
        let failure = run(seed, options).err()?;
        let is_it = invariants.contains(&failure.violation.invariant);
        others += u64::from(!is_it);
        is_it.then_some(failure)
    });
    mutant::set(Mutant::None);
    SearchResult { failure, others }
}
