//! Repeatable random numbers.

use std::sync::{Arc, Mutex, PoisonError};

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

use crate::Random;

/// A seeded generator. Clones share one sequence.
#[derive(Clone, Debug)]
pub struct SimRandom {
    rng: Arc<Mutex<StdRng>>,
}

impl SimRandom {
    /// The generator with `seed`: always the same numbers in the same order.
    pub fn new(seed: u64) -> SimRandom {
        SimRandom { rng: Arc::new(Mutex::new(StdRng::seed_from_u64(seed))) }
    }

    /// A number below `bound`; zero when `bound` is zero.
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }

    /// True once in `n` calls on average.
    pub fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}

impl Random for SimRandom {
    fn fill(&self, bytes: &mut [u8]) {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(bytes);
    }
}
