//! The kinds of faults of one seed.

use std::time::Duration;

use io::sim::SimRandom;

/// What may go wrong in one seed.
#[derive(Clone, Copy, Debug)]
pub struct FaultPlan {
    /// The power may go, not only processes.
    pub loses_power: bool,
    /// Tables are changed while it storms.
    pub reconfigures: bool,
    /// They get other numbers of shards too.
    pub reshards: bool,
    /// Clocks on the wall jump.
    pub clocks_jump: bool,
    /// The power goes everywhere when a write has been acknowledged.
    pub power_fails_on_ack: bool,
    /// Processes end and start again at once, and votes are divided while they do.
    pub restarts: bool,
    /// Engines write down what they have, at moments of their own.
    pub flushes_engines: bool,
    /// Replicas that were removed start again where that is not known: see `scheme/reborn.rs`.
    pub restarts_removed: bool,
    /// Soft writes are lost by those who go on: see `scheme/lapse.rs`.
    pub loses_soft_writes: bool,
    /// Servers are removed for good: see `scheme/removal.rs`.
    pub removes_servers: bool,
    /// Whoever reshards a table ends when others hear of it: see `scheme/cleft.rs`.
    pub interrupts_reshards: bool,
    /// Copies of rows are interrupted on both sides: see `scheme/halt.rs`.
    pub interrupts_copies: bool,
    /// Disks are full, or hang, while their servers live. No process is stopped then: one that goes on answers the first
    /// question as it would have done before, so that nothing could be said of how old an answer may be.
    pub disks_fail: bool,
    /// The longest pause between two things that go wrong.
    pub pause_most: Duration,
}

impl FaultPlan {
    /// What the seed brings.
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
            pause_most: Duration::from_millis([600, 2000, 5000][random.below(3) as usize]),
        }
    }
}

impl FaultPlan {
    /// The same, with what only a full seed has.
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
    }
}

impl FaultPlan {
    /// Whether there are schemes in it that begin by themselves.
    pub(crate) fn has_scenarios(&self) -> bool {
        self.restarts_removed
            || self.loses_soft_writes
            || self.removes_servers
            || self.interrupts_reshards
            || self.interrupts_copies
    }
}
