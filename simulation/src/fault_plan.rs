//! The kinds of faults of one seed.

use std::time::Duration;

use io::sim::SimRandom;

/// The kinds of faults that may happen in one seed.
#[derive(Clone, Copy, Debug)]
pub struct FaultPlan {
    /// Machines may lose power, not only end their processes.
    pub loses_power: bool,
    /// Tables are reconfigured.
    pub reconfigures: bool,
    /// Tables get other numbers of shards.
    pub reshards: bool,
    /// Wall clocks jump.
    pub clocks_jump: bool,
    /// All machines lose power when a write is acknowledged.
    pub power_fails_on_ack: bool,
    /// Processes restart at once, also while votes are divided.
    pub restarts: bool,
    /// Engines flush at random moments.
    pub flushes_engines: bool,
    /// Removed replicas restart where their removal is unknown: `scenarios/removed_restart.rs`.
    pub restarts_removed: bool,
    /// Soft writes are lost by the replicas that continue: `scenarios/lost_soft_write.rs`.
    pub loses_soft_writes: bool,
    /// Servers are removed permanently: `scenarios/server_removal.rs`.
    pub removes_servers: bool,
    /// A server that reshards a table ends when another one has the new layout: `scenarios/interrupted_reshard.rs`.
    pub interrupts_reshards: bool,
    /// Copies of rows are interrupted on both sides: `scenarios/interrupted_copy.rs`.
    pub interrupts_copies: bool,
    /// Disks are full, or hang, while their servers run. No process is stopped then: a process that continues serves the
    /// first request from its old state, so that the age of reads would have no bound.
    pub disks_fail: bool,
    /// An operation of a disk fails, too. The log of its server stops, and the server is restarted after a while.
    pub disks_break: bool,
    /// The longest pause between two faults.
    pub pause_max: Duration,
}

impl FaultPlan {
    /// Draws the kinds of faults of every seed.
    #[must_use]
    pub fn draw(random: &SimRandom) -> FaultPlan {
        FaultPlan {
            loses_power: random.one_in(2),
            reconfigures: random.one_in(2),
            reshards: false,
            clocks_jump: false,
            power_fails_on_ack: false,
            restarts: false,
            flushes_engines: false,
            restarts_removed: false,
            loses_soft_writes: false,
            removes_servers: false,
            interrupts_reshards: false,
            interrupts_copies: false,
            disks_fail: false,
            disks_break: false,
            pause_max: Duration::from_millis([600, 2000, 5000][random.below(3) as usize]),
        }
    }
}

impl FaultPlan {
    /// Draws the kinds of faults that only a seed with everything has.
    pub(crate) fn widen(&mut self, random: &SimRandom) {
        self.reshards = self.reconfigures && random.one_in(2);
        self.clocks_jump = random.one_in(2);
        self.power_fails_on_ack = self.loses_power && random.one_in(2);
        self.restarts = random.one_in(3);
        self.flushes_engines = random.one_in(2);
        self.restarts_removed = self.reconfigures && random.one_in(2);
        self.loses_soft_writes = self.loses_power && random.one_in(2);
        self.removes_servers = random.one_in(3);
        self.interrupts_reshards = self.reshards && random.one_in(2);
        self.interrupts_copies = self.reconfigures && random.one_in(2);
        self.disks_fail = random.one_in(3);
        self.disks_break = self.disks_fail && random.one_in(2);
    }
}

impl FaultPlan {
    /// Whether scenarios begin at random.
    pub(crate) fn has_scenarios(&self) -> bool {
        self.restarts_removed
            || self.loses_soft_writes
            || self.removes_servers
            || self.interrupts_reshards
            || self.interrupts_copies
    }
}
