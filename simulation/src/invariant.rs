//! The invariants of a cluster. A failed seed names the invariant that it broke, so that a mutant counts as detected only
//! if it breaks one that it concerns.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invariant {
    /// No thread panics, every node starts, and no thread loops without progress.
    Runs,
    /// After the faults the cluster reaches the state of its catalog, and every document can be read.
    Settles,
    /// After the faults the replicas of a shard are equal, count their rows right, and are where the catalog places them.
    Same,
    /// The results that clients received are possible.
    Answers,
    /// No two replicas lead one group in one term.
    Leads,
    /// No row is durable before the log that it comes from.
    Follows,
    /// Readers of changefeeds receive every change of their table, once and in order.
    Feeds,
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: Invariant,
    /// A description.
    pub what: String,
}

impl Invariant {
    /// A violation of this invariant.
    pub(crate) fn violated(self, what: impl Into<String>) -> Violation {
        Violation { invariant: self, what: what.into() }
    }
}

/// The failure of a thread or a start.
impl From<String> for Violation {
    fn from(what: String) -> Violation {
        Invariant::Runs.violated(what)
    }
}
