//! Distributions of field lengths and scan lengths.

use super::zipfian::Zipfian;
use crate::rng::Rng;

/// A distribution of lengths.
#[derive(Clone, Debug)]
pub enum Lengths {
    /// Always the same.
    Constant(u64),
    /// Uniform, both ends included.
    Uniform(u64, u64),
    /// Zipfian: the first length is the most frequent.
    Zipfian(u64, Zipfian),
    /// Weighted buckets of equal size.
    Histogram(Buckets),
}

impl Lengths {
    /// A zipfian distribution from `shortest`, the most frequent, to `longest`.
    pub fn zipfian(shortest: u64, longest: u64) -> Self {
        Lengths::Zipfian(shortest, Zipfian::new(longest.saturating_sub(shortest) + 1))
    }

    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match self {
            Lengths::Constant(length) => *length,
            Lengths::Uniform(from, to) => from + rng.below(to.saturating_sub(*from) + 1),
            Lengths::Zipfian(from, ranks) => from + ranks.draw(rng),
            Lengths::Histogram(buckets) => buckets.draw(rng),
        }
    }

    pub fn constant(&self) -> Option<u64> {
        match self {
            Lengths::Constant(length) => Some(*length),
            _ => None,
        }
    }
}

/// A histogram file of YCSB (`fieldlengthhistogram`).
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    size: u64,
    weights: Vec<u64>,
    total: u64,
}

/// Why a histogram file is invalid.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum BucketsError {
    /// The first line is wrong.
    #[error("the first line must be \"BlockSize<TAB>number\"")]
    NoBlockSize,
    /// Another line is wrong.
    #[error("line {line} must be \"bucket<TAB>count\"")]
    BadLine {
        /// Counted from 1.
        line: usize,
    },
    /// The weights are all 0.
    #[error("the histogram is empty")]
    Empty,
}

impl Buckets {
    /// Parses a histogram file.
    pub fn parse(text: &str) -> Result<Self, BucketsError> {
        let mut lines = text.lines();
        let size = lines
            .next()
            .and_then(|line| line.split_once('\t'))
            .filter(|(name, _)| *name == "BlockSize")
            .and_then(|(_, size)| size.trim().parse().ok())
            .ok_or(BucketsError::NoBlockSize)?;
        let mut weights = Vec::new();
        for (place, line) in lines.enumerate() {
            let bad = BucketsError::BadLine { line: place + 2 };
            let (bucket, count) = line.split_once('\t').ok_or(bad)?;
            let bad = || BucketsError::BadLine { line: place + 2 };
            let bucket: usize = bucket.trim().parse().map_err(|_| bad())?;
            let count: u64 = count.trim().parse().map_err(|_| bad())?;
            if bucket > 1_000_000 {
                return Err(bad());
            }
            weights.resize(weights.len().max(bucket + 1), 0);
            weights[bucket] = count;
        }
        let total = weights.iter().sum();
        if total == 0 {
            return Err(BucketsError::Empty);
        }
        Ok(Buckets { size, weights, total })
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        let mut left = rng.below(self.total);
        for (bucket, weight) in self.weights.iter().enumerate() {
            if left < *weight {
                return (bucket as u64 + 1) * self.size;
            }
            left -= weight;
        }
        self.weights.len() as u64 * self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_stay_inside_their_bounds() {
        let mut rng = Rng::new(2, 0);
        for lengths in [Lengths::Uniform(1, 100), Lengths::zipfian(1, 100)] {
            let drawn: Vec<u64> = (0..50_000).map(|_| lengths.draw(&mut rng)).collect();
            assert_eq!(drawn.iter().min(), Some(&1));
            assert!(drawn.iter().max().is_some_and(|m| (99..=100).contains(m)));
        }
    }

    #[test]
    fn histogram_files_are_read_and_drawn_by_weight() {
        let buckets = Buckets::parse("BlockSize\t10\n0\t1\n3\t3\n").expect("a histogram");
        let mut rng = Rng::new(3, 0);
        let long = (0..10_000).filter(|_| buckets.draw(&mut rng) == 40).count();
        assert!((7_300..7_700).contains(&long), "{long}");
        assert_eq!(Buckets::parse("x"), Err(BucketsError::NoBlockSize));
        assert_eq!(Buckets::parse("BlockSize\t1\nx"), Err(BucketsError::BadLine { line: 2 }));
    }
}
