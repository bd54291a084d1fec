//! Chooses the record of each operation (`requestdistribution`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::acknowledged::AcknowledgedCounter;
use super::settings::{Distribution, Settings};
use super::zipfian::{ScrambledZipfian, Zipfian};
use crate::rng::Rng;

/// Draws numbers of existing records.
#[derive(Clone, Debug)]
pub struct KeyChooser {
    shape: Shape,
    existing: Arc<AcknowledgedCounter>,
}

#[derive(Clone, Debug)]
enum Shape {
    Uniform { first: u64, count: u64 },
    Zipfian(ScrambledZipfian),
    Latest(Zipfian),
    Hotspot { first: u64, count: u64, hot: u64, hot_share: f64 },
    Exponential { gamma: f64 },
    Sequential { first: u64, count: u64, next: Arc<AtomicU64> },
}

impl KeyChooser {
    /// A chooser for a run over `records` records; clones share the position of `sequential`.
    pub fn new(settings: &Settings, records: u64, existing: Arc<AcknowledgedCounter>) -> Self {
        let first = settings.insertstart;
        let count = settings.insertcount.unwrap_or(records - first.min(records)).max(1);
        let shape = match settings.distribution {
            Distribution::Uniform => Shape::Uniform { first, count },
            Distribution::Zipfian => {
                let items = count + settings.expected_new_keys();
                Shape::Zipfian(ScrambledZipfian::new(first, items))
            }
            Distribution::Latest => Shape::Latest(Zipfian::new(records)),
            Distribution::Hotspot { data_share, operation_share } => Shape::Hotspot {
                first,
                count,
                hot: ((count as f64 * data_share) as u64).min(count),
                hot_share: operation_share,
            },
            Distribution::Exponential { percentile, share } => {
                Shape::Exponential { gamma: -(1.0 - percentile / 100.0).ln() / (records as f64 * share) }
            }
            Distribution::Sequential => Shape::Sequential { first, count, next: Arc::new(AtomicU64::new(0)) },
        };
        KeyChooser { shape, existing }
    }

    /// Draws a record number.
    pub fn draw(&mut self, rng: &mut Rng) -> u64 {
        let existing = self.existing.existing().max(1);
        loop {
            let drawn = self.draw_once(rng, existing);
            if let Some(number) = drawn.filter(|n| *n < existing) {
                return number;
            }
        }
    }

    fn draw_once(&mut self, rng: &mut Rng, existing: u64) -> Option<u64> {
        match &mut self.shape {
            Shape::Uniform { first, count } => Some(*first + rng.below(*count)),
            Shape::Zipfian(keys) => Some(keys.draw(rng)),
            Shape::Latest(ranks) => {
                ranks.grow_to(existing);
                (existing - 1).checked_sub(ranks.draw(rng))
            }
            Shape::Hotspot { first, count, hot, hot_share } => {
                let is_hot = *hot > 0 && (rng.unit() < *hot_share || *hot == *count);
                let within = if is_hot { rng.below(*hot) } else { *hot + rng.below(*count - *hot) };
                Some(*first + within)
            }
            Shape::Exponential { gamma } => {
                let back = -(1.0 - rng.unit()).ln() / *gamma;
                (existing - 1).checked_sub(back as u64)
            }
            Shape::Sequential { first, count, next } => {
                Some(*first + next.fetch_add(1, Ordering::Relaxed) % *count)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(distribution: Distribution, records: u64, draws: u32) -> Vec<f64> {
        let settings = Settings { distribution, ..Settings::default() };
        let existing = Arc::new(AcknowledgedCounter::new(records));
        let mut chooser = KeyChooser::new(&settings, records, existing);
        let mut rng = Rng::new(77, 0);
        let mut counts = vec![0u32; records as usize];
        for _ in 0..draws {
            counts[chooser.draw(&mut rng) as usize] += 1;
        }
        counts.iter().map(|c| f64::from(*c) / f64::from(draws)).collect()
    }

    #[test]
    fn uniform_and_sequential_touch_every_record_alike() {
        let uniform = shares(Distribution::Uniform, 100, 200_000);
        assert!(uniform.iter().all(|s| (0.008..0.012).contains(s)));
        let sequential = shares(Distribution::Sequential, 100, 1_000);
        assert!(sequential.iter().all(|s| (s - 0.01).abs() < 1e-9));
    }

    #[test]
    fn hot_records_get_their_share_of_operations() {
        let hotspot = Distribution::Hotspot { data_share: 0.2, operation_share: 0.8 };
        let hot: f64 = shares(hotspot, 1_000, 200_000)[..200].iter().sum();
        assert!((hot - 0.8).abs() < 0.01, "{hot}");
    }

    #[test]
    fn the_newest_record_is_the_hottest_of_latest() {
        let latest = shares(Distribution::Latest, 1_000, 200_000);
        let zeta = (1..=1_000).map(|i| 1.0 / f64::from(i).powf(0.99)).sum::<f64>();
        assert!((latest[999] - 1.0 / zeta).abs() < 0.005, "{}", latest[999]);
        assert!(latest[999] > latest[998] && latest[998] > latest[500]);
    }

    #[test]
    fn exponential_puts_its_percentile_into_its_share() {
        let shape = Distribution::Exponential { percentile: 95.0, share: 0.857_142_857_1 };
        let newest: f64 = shares(shape, 10_000, 200_000)[1_428..].iter().sum();
        // Draws beyond the oldest record are repeated, so the share is slightly above 95 %.
        assert!((0.95..0.99).contains(&newest), "{newest}");
    }

    #[test]
    fn inserted_records_are_drawn_only_once_acknowledged() {
        let settings = Settings { distribution: Distribution::Latest, ..Settings::default() };
        let existing = Arc::new(AcknowledgedCounter::new(10));
        let mut chooser = KeyChooser::new(&settings, 10, Arc::clone(&existing));
        let mut rng = Rng::new(5, 0);
        let new = existing.allocate();
        assert!((0..1_000).all(|_| chooser.draw(&mut rng) < new));
        existing.acknowledge(new);
        assert!((0..1_000).any(|_| chooser.draw(&mut rng) == new));
    }
}
