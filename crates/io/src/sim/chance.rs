//! Random numbers for programs that generate inputs, determined by the seed so that a run can be repeated.

/// A stream of numbers (splitmix64). Stored seeds identify inputs by it, so it must never change.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The stream with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.draw() % limit.max(1) as u64) as usize
    }

    /// True once in `times` calls on average.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of `from`, which must not be empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A length from 1 to `limit` that is usually short.
    pub fn length(&mut self, limit: usize) -> usize {
        let scale = [4, 16, 256, limit][self.below(4)].min(limit);
        1 + self.below(scale)
    }
}

#[cfg(test)]
mod tests {
    use super::Chance;

    #[test]
    fn a_seed_draws_the_same_numbers_in_every_version() {
        let mut chance = Chance::new(0);
        // The first numbers of splitmix64 with seed 0, as published by its authors.
        assert_eq!(chance.draw(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(chance.draw(), 0x6E78_9E6A_A1B9_65F4);
        assert_eq!((chance.below(0), chance.below(1)), (0, 0));
    }
}
