//! One run of a sweep: the workload, the cluster, the result, and the conditions.

use crate::conditions::Conditions;
use crate::result::RunResult;

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

    /// A single node has no second replica to write to and no other node to forward to, so its figure for these
    /// workloads is not on the curve of the other sizes (research on benchmarks, contradiction 12).
    pub(super) fn starts_at_two(self) -> bool {
        matches!(self, Workload::A | Workload::CSync)
    }
}

/// A run of one workload at one size of cluster.
pub struct SweepRun {
    pub workload: Workload,
    /// The round of this run at this size, from 0. Runs of one round are compared with each other.
    pub round: usize,
    /// Servers of the cluster.
    pub nodes: usize,
    /// Shards of the table.
    pub shards: u32,
    /// The number of replicas of each shard.
    pub replicas: u32,
    pub result: RunResult,
    pub conditions: Conditions,
}
