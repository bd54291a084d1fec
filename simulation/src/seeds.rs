//! Seeds that found faults of the server, kept as regression tests. A change of the simulation may give a seed another
//! course, so each fault also has a test in its crate.

use std::time::Duration;

use crate::world::{RunOptions, Scope};

/// A seed that failed once.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    pub seed: u64,
    /// The number of machines; 0 if the seed draws it.
    pub nodes: usize,
    /// The length of the fault period.
    pub seconds: u64,
    /// The fault that it found.
    pub found: &'static str,
}

impl Kept {
    #[must_use]
    pub fn options(&self) -> RunOptions {
        RunOptions { nodes: self.nodes, fault_period: Duration::from_secs(self.seconds), scope: Scope::Basic }
    }
}

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
        found: "a node whose replica was removed and placed again while it was down did not start",
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
        found: "the last messages of an ended process kept the next one of its server away permanently",
    },
    Kept {
        seed: 2889,
        nodes: 0,
        seconds: 20,
        found: "a log whose oldest segment begins with entries that replaced the last ones of the one before was \
                taken for damaged",
    },
    Kept {
        seed: 388,
        nodes: 0,
        seconds: 20,
        found: "a feed resumed after an entry that a power loss had taken joined a stream that had not come so far, and \
                missed what came in its place",
    },
    Kept {
        seed: 7927,
        nodes: 0,
        seconds: 20,
        found: "a feed waited in a sealed group whose last changes a power loss had taken from the history everywhere, \
                instead of ending",
    },
];
