//! Faults that are planted, and the promises that each must be seen to break: a fault that only shows in
//! something else was not found for what it is.

use log::mutant::{self, Mutant};

use crate::invariant::Promise;
use crate::run::{Failure, run};
use crate::world::Plot;

/// What each fault breaks.
pub const PLANTED: [(&str, Mutant, &[Promise]); 11] = [
    // A write that was acknowledged is lost.
    ("ack-before-fsync", Mutant::AckBeforeFsync, &[Promise::Answers]),
    ("forget-vote", Mutant::ForgetVote, &[Promise::Leads]),
    ("apply-twice", Mutant::ApplyTwice, &[Promise::Answers, Promise::Same]),
    // A read that is confirmed by nobody is old.
    ("skip-read-index", Mutant::SkipReadIndex, &[Promise::Answers]),
    // Who comes back is taken for somebody who has what it has not.
    ("reuse-peer", Mutant::ReusePeer, &[Promise::Answers, Promise::Same, Promise::Settles]),
    ("drop-row", Mutant::DropRow, &[Promise::Answers, Promise::Same]),
    ("serve-removed", Mutant::ServeRemoved, &[Promise::Answers, Promise::Same]),
    ("keep-void-rows", Mutant::KeepVoidRows, &[Promise::Same]),
    // What its forerunners still apply is written over what it has.
    ("open-too-early", Mutant::OpenEarly, &[Promise::Answers, Promise::Same]),
    // After a power loss the rows are of entries that nobody knows of.
    ("flush-unsynced", Mutant::FlushUnsynced, &[Promise::Follows]),
    // The row at which a table was cut is nobody's.
    ("split-at-wrong-key", Mutant::SplitWrong, &[Promise::Answers, Promise::Same, Promise::Settles]),
];

/// What came of looking for a planted fault.
pub struct Found {
    /// The seed that broke a promise that the fault concerns.
    pub failure: Option<Failure>,
    /// How many seeds broke another one before.
    pub others: u64,
}

/// Looks for a fault in `seeds`.
pub fn find(mutant: Mutant, promises: &[Promise], seeds: std::ops::Range<u64>, plot: Plot) -> Found {
    mutant::set(mutant);
    let mut others = 0;
    let failure = seeds.into_iter().find_map(|seed| {
        let failure = run(seed, plot).err()?;
        let is_it = promises.contains(&failure.broken.promise);
        others += u64::from(!is_it);
        is_it.then_some(failure)
    });
    mutant::set(Mutant::None);
    Found { failure, others }
}
