//! The names of things in a log: groups, positions, and how durable is durable.

use std::fmt;

/// One replicated sequence of entries: the log of one shard. Zero is the catalog's.
///
/// Never reused: a closed group leaves a tombstone and can never be opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// A position in the log of one group, counted from 1. Zero is before the first entry.
///
/// Positions of a group only grow, **but not by one**: an election takes a position of its own
/// that no [`Applier`](crate::Applier) sees. Never assert that they are adjacent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// The time of one leader, counted upwards. No two replicas ever lead a group in the same term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// What must be true of an entry before it is applied and its proposer told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It survives a power loss: fsynced, together with everyone else who waits, by a majority
    /// of the replicas.
    Hard,
    /// It survives the end of these processes: a majority has given it to the operating system. An
    /// fsync follows within 100 ms; a power loss before that may lose it and everything after it.
    Soft,
}

/// How many replicas must have an entry as durably as it asks before its proposer is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acks {
    /// More than half of those that vote.
    #[default]
    Majority,
    /// The leader alone. The entry goes to the others all the same; should the leader be lost before
    /// a majority has it, so is the entry, and the leader's rows are replaced when it returns.
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

/// A point in the log of a node, between two records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the segment.
    pub segment: u64,
    /// Bytes before the point in that segment.
    pub offset: u64,
}
