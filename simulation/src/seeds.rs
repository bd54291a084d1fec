//! Seeds that found a fault of ours, kept so that they pass from then on. A change of the simulation
//! may make them tell another story; each fault has a test of its own where it was.

use std::time::Duration;

use crate::world::{Plot, Scope};

/// A seed that failed once.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// The seed.
    pub seed: u64,
    /// How many machines it had; 0 if the seed drew them.
    pub nodes: usize,
    /// How long it stormed.
    pub seconds: u64,
    /// What was wrong.
    pub found: &'static str,
}

impl Kept {
    /// What it was run with.
    #[must_use]
    pub fn plot(&self) -> Plot {
        Plot { nodes: self.nodes, storm: Duration::from_secs(self.seconds), scope: Scope::Basic }
    }
}

/// All of them.
pub const KEPT: &[Kept] = &[
    Kept {
        seed: 57,
        nodes: 0,
        seconds: 20,
        found: "an elected leader needed the vote of a replica that was behind its log, and gave no copy",
    },
    Kept {
        seed: 8,
        nodes: 0,
        seconds: 20,
        found: "replicas behind the trimmed log were never offered a copy",
    },
    Kept {
        seed: 140,
        nodes: 0,
        seconds: 20,
        found: "a node whose replica was removed and placed anew while it was away did not start",
    },
    Kept {
        seed: 66,
        nodes: 0,
        seconds: 20,
        found: "a restarted replica waited for entries that had left its log and were not about rows",
    },
    Kept {
        seed: 160,
        nodes: 0,
        seconds: 20,
        found: "the last words of a process that was gone kept the next one of its server away for good",
    },
    Kept {
        seed: 2889,
        nodes: 0,
        seconds: 20,
        found: "a log whose oldest segment begins with entries that replaced the last ones of the one before was \
                taken for damaged",
    },
];
