//! Identifiers in a log: groups, positions and terms; and levels of durability.

use std::fmt;

/// One replicated sequence of entries: the log of one shard. Zero is the catalog's.
///
/// Never reused: a closed group leaves a tombstone and can never be opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// A position in the log of one group, counted from 1. Zero is before the first entry.
///
/// Positions of a group only grow, **but not by one**: an election takes a position
/// that no [`Applier`](crate::Applier) sees. Never assert that they are adjacent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// The number of an election; terms only grow. No two replicas ever lead a group in the same term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// How durable an entry must be before it is applied and its proposer is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It survives a power loss: a quorum of the replicas has fsynced it, together with all other entries that wait.
    Hard,
    /// It survives the end of the processes: a quorum has given it to the operating system. An fsync follows within
    /// 100 ms; a power loss before that may lose it and everything after it.
    Soft,
}

/// How many replicas must have an entry, as durably as it requests, before its proposer is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acks {
    /// More than half of the voters.
    #[default]
    Majority,
    /// The leader alone. The entry is still sent to the other replicas. If the leader fails before a quorum has the entry,
    /// the entry is lost, and the leader's rows are replaced when it returns.
    One,
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A point between two records in the log of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub segment: u64,
    /// Bytes before the point in that segment.
    pub offset: u64,
}
