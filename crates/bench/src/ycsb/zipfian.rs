//! The zipfian generator of YCSB (Gray et al., "Quickly generating billion-record synthetic
//! databases", 1994), constant 0.99, plain and scrambled.

use super::keys::fnv64;
use crate::rng::Rng;

const THETA: f64 = 0.99;
/// Sum of `i^-0.99` for i = 1, 2.
const ZETA_OF_TWO: f64 = 1.503_477_775_028_359_4;
/// Number of items of the scrambled zipfian, for any number of records.
const SCRAMBLED_ITEMS: u64 = 10_000_000_001;
/// Sum of `i^-0.99` over [`SCRAMBLED_ITEMS`], as YCSB states it.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// Draws ranks; rank 0 is the most frequent.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    /// A generator of `items` ranks (at least 1). Takes time in proportion to `items`.
    pub fn new(items: u64) -> Self {
        let items = items.max(1);
        Zipfian::with_zeta(items, zeta_from(0, items, 0.0))
    }

    fn with_zeta(items: u64, zeta: f64) -> Self {
        let mut zipfian = Zipfian { items, zeta, alpha: 1.0 / (1.0 - THETA), eta: 0.0 };
        zipfian.eta = eta(items, zeta);
        zipfian
    }

    /// Draws a rank in 0..items.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let u = rng.unit();
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(THETA) {
            return 1;
        }
        (self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64
    }

    /// Adds ranks up to `items`; a smaller number is ignored. Takes time in proportion to the difference.
    pub fn grow_to(&mut self, items: u64) {
        if items > self.items {
            self.zeta = zeta_from(self.items, items, self.zeta);
            self.items = items;
            self.eta = eta(items, self.zeta);
        }
    }
}

/// Zipfian ranks scattered over a key space by hashing, as in `requestdistribution=zipfian`.
#[derive(Clone, Debug)]
pub struct ScrambledZipfian {
    ranks: Zipfian,
    first: u64,
    items: u64,
}

impl ScrambledZipfian {
    /// A generator of `items` numbers (at least 1) from `first`.
    pub fn new(first: u64, items: u64) -> Self {
        let ranks = Zipfian::with_zeta(SCRAMBLED_ITEMS, SCRAMBLED_ZETA);
        ScrambledZipfian { ranks, first, items: items.max(1) }
    }

    pub fn draw(&self, rng: &mut Rng) -> u64 {
        self.first + fnv64(self.ranks.draw(rng)) % self.items
    }
}

fn zeta_from(known: u64, items: u64, sum: f64) -> f64 {
    (known..items).fold(sum, |sum, i| sum + 1.0 / ((i + 1) as f64).powf(THETA))
}

fn eta(items: u64, zeta: f64) -> f64 {
    (1.0 - (2.0 / items as f64).powf(1.0 - THETA)) / (1.0 - ZETA_OF_TWO / zeta)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn constants_are_those_of_the_original() {
        let ranks = Zipfian::with_zeta(SCRAMBLED_ITEMS, SCRAMBLED_ZETA);
        assert!((ranks.eta - 0.212_200_033_809_674_06).abs() < 1e-12, "{}", ranks.eta);
        assert!((ranks.alpha - 100.0).abs() < 1e-9);
        assert!((Zipfian::new(2).zeta - ZETA_OF_TWO).abs() < 1e-12);
    }

    #[test]
    fn the_hottest_keys_get_their_share() {
        let (seed, draws) = (20_160_728, 2_000_000);
        let mut rng = Rng::new(seed, 0);
        let keys = ScrambledZipfian::new(0, 1_000_001);
        let mut counts: HashMap<u64, u32> = HashMap::new();
        for _ in 0..draws {
            *counts.entry(keys.draw(&mut rng)).or_default() += 1;
        }
        let mut shares: Vec<f64> =
            counts.values().map(|c| f64::from(*c) / f64::from(draws) * 100.0).collect();
        shares.sort_by(|a, b| b.total_cmp(a));
        // Three standard deviations of a share of 3.8 % in two million draws are 0.04 points.
        assert!((shares[0] - 3.778).abs() < 0.05, "seed {seed}: {}", shares[0]);
        assert!((shares[1] - 1.902).abs() < 0.04, "seed {seed}: {}", shares[1]);
        let hottest = counts.iter().max_by_key(|(_, count)| **count).map(|(key, _)| *key);
        assert_eq!(hottest, Some(fnv64(0) % 1_000_001));
    }

    #[test]
    fn growing_is_the_same_as_starting_larger() {
        let mut grown = Zipfian::new(1_000);
        grown.grow_to(5_000);
        grown.grow_to(10);
        let fresh = Zipfian::new(5_000);
        assert!((grown.zeta - fresh.zeta).abs() < 1e-9 && (grown.eta - fresh.eta).abs() < 1e-9);
        let (mut a, mut b) = (Rng::new(1, 0), Rng::new(1, 0));
        assert!((0..10_000).all(|_| {
            let drawn = grown.draw(&mut a);
            drawn == fresh.draw(&mut b) && drawn < 5_000
        }));
    }
}
