//! Randomness of the operating system, through a generator seeded from it.

use rand::RngCore;

use crate::Random;

/// A cryptographically strong generator, one per thread, seeded by the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealRandom;

impl Random for RealRandom {
    fn fill(&self, bytes: &mut [u8]) {
        rand::rng().fill_bytes(bytes);
    }
}
