//! What a cluster promises, and how a seed says which promise was broken: a planted fault must break the
//! one that it concerns.

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// No thread panics, every node starts, nothing goes round in circles.
    Runs,
    /// In peace the cluster becomes as its catalog says, and every document can be read.
    Settles,
    /// In peace the replicas of a shard are the same, count their rows, and are where the catalog says.
    Same,
    /// What clients were told can be explained.
    Answers,
    /// No two replicas lead one group in one term.
    Leads,
    /// No row is durable before the log that it comes from.
    Follows,
}

/// A promise that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which.
    pub promise: Promise,
    /// How.
    pub what: String,
}

impl Promise {
    /// This promise was broken so.
    pub(crate) fn broken(self, what: impl Into<String>) -> Broken {
        Broken { promise: self, what: what.into() }
    }
}

/// What goes wrong with a thread or a start.
impl From<String> for Broken {
    fn from(what: String) -> Broken {
        Promise::Runs.broken(what)
    }
}
