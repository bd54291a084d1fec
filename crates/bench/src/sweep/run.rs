//! One run of a sweep: what was run, on what, and what was noted around it.

use crate::result::RunResult;
use crate::surroundings::Surroundings;

/// A workload of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// YCSB A, hard.
    A,
    /// YCSB C, `single`.
    CSync,
    /// YCSB C, `outdated`.
    COutdated,
    /// The map-reduce query.
    Analytic,
}

impl Workload {
    /// The name of its published series.
    pub fn key(self) -> &'static str {
        match self {
            Workload::A => "a",
            Workload::CSync => "c-sync",
            Workload::COutdated => "c-outdated",
            Workload::Analytic => "analytic",
        }
    }

    /// Title for people.
    pub fn title(self) -> &'static str {
        match self {
            Workload::A => "YCSB A, two replicas, hard",
            Workload::CSync => "YCSB C, single",
            Workload::COutdated => "YCSB C, outdated",
            Workload::Analytic => "Analytic query",
        }
    }

    pub(super) fn unit(self) -> &'static str {
        if self == Workload::Analytic { "documents/s" } else { "operations/s" }
    }

    /// One node has no second replica to write to and no other node to ask: its figure for these is
    /// no part of the curve that the others lie on (research on benchmarks, contradiction 12).
    pub(super) fn starts_at_two(self) -> bool {
        matches!(self, Workload::A | Workload::CSync)
    }
}

/// One run of a sweep.
pub struct SweepRun {
    /// What was run.
    pub workload: Workload,
    /// Which time it was that this was run at this size, from 0. Runs of one round are compared with each other.
    pub round: usize,
    /// Servers of the cluster.
    pub nodes: usize,
    /// Shards of the table.
    pub shards: u32,
    /// Replicas of each.
    pub replicas: u32,
    /// What came out.
    pub result: RunResult,
    /// What was noted around it.
    pub around: Surroundings,
}
