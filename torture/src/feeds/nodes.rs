//! Which nodes run. A connection to a node that is stopped on purpose may end; any other must not.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// The nodes as clients see them.
pub(super) struct Nodes {
    drivers: Vec<SocketAddr>,
    is_down: Vec<AtomicBool>,
    stops: Vec<AtomicU64>,
}

/// A node that a client uses, and how often it was stopped before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) nth: usize,
    pub(super) driver: SocketAddr,
    stops: u64,
}

impl Nodes {
    pub(super) fn new(drivers: Vec<SocketAddr>) -> Nodes {
        Nodes {
            is_down: drivers.iter().map(|_| AtomicBool::new(false)).collect(),
            stops: drivers.iter().map(|_| AtomicU64::new(0)).collect(),
            drivers,
        }
    }

    /// Any node that runs.
    pub(super) fn any(&self, random: &mut StdRng) -> Chosen {
        let all: Vec<Chosen> = (0..self.drivers.len())
            .map(|nth| Chosen {
                nth,
                driver: self.drivers[nth],
                stops: self.stops[nth].load(Ordering::SeqCst),
            })
            .collect();
        let up: Vec<Chosen> =
            all.iter().copied().filter(|node| !self.is_down[node.nth].load(Ordering::SeqCst)).collect();
        up.choose(random).copied().unwrap_or(all[0])
    }

    /// Called before a node is stopped.
    pub(super) fn stopping(&self, nth: usize) {
        self.is_down[nth].store(true, Ordering::SeqCst);
        self.stops[nth].fetch_add(1, Ordering::SeqCst);
    }

    /// Called once a node that was stopped is ready again.
    pub(super) fn started(&self, nth: usize) {
        self.is_down[nth].store(false, Ordering::SeqCst);
    }

    /// Whether the node was stopped since it was chosen.
    pub(super) fn was_stopped(&self, chosen: Chosen) -> bool {
        self.stops[chosen.nth].load(Ordering::SeqCst) != chosen.stops
    }
}
