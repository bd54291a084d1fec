//! BigchainDB's tests of 2016 with the number of nodes divided by a factor; every node has as many write units as
//! published.
//!
//! Source: BigchainDB 0.0.1, "RethinkDB benchmarks", tests 1 to 6.

/// Shards of the published table.
const SHARDS: usize = 32;
/// The factors by which the published clusters can be divided: one half of the nodes has more units than the other, and
/// with two replicas one half holds the primaries, the other half the secondaries.
pub const FACTORS: [usize; 5] = [1, 2, 4, 8, 16];

/// The servers, write units and throughput of a published test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedTest {
    pub number: u32,
    /// Number of servers.
    nodes: usize,
    /// Write units of each server in the first half, and in the second.
    units_by_half: [usize; 2],
    blocks_per_second: f64,
}

/// The published tests, at their published size.
pub const PUBLISHED_TESTS: [PublishedTest; 6] = [
    PublishedTest { number: 1, nodes: 32, units_by_half: [2, 2], blocks_per_second: 1_000.0 },
    PublishedTest { number: 2, nodes: 32, units_by_half: [2, 3], blocks_per_second: 1_200.0 },
    PublishedTest { number: 3, nodes: 32, units_by_half: [2, 4], blocks_per_second: 1_400.0 },
    PublishedTest { number: 4, nodes: 64, units_by_half: [1, 1], blocks_per_second: 1_000.0 },
    PublishedTest { number: 5, nodes: 64, units_by_half: [2, 2], blocks_per_second: 2_000.0 },
    PublishedTest { number: 6, nodes: 64, units_by_half: [1, 2], blocks_per_second: 1_500.0 },
];

impl PublishedTest {
    /// The number of servers of a cluster that is smaller by `factor`, one of [`FACTORS`].
    pub fn nodes(self, factor: usize) -> usize {
        self.nodes / factor
    }

    /// The write units of each server.
    pub fn units_by_node(self, factor: usize) -> Vec<usize> {
        let half = self.nodes(factor) / 2;
        self.units_by_half.iter().flat_map(|units| vec![*units; half]).collect()
    }

    /// The published blocks per second, divided by `factor`.
    pub fn published_per_second(self, factor: usize) -> f64 {
        self.blocks_per_second / factor as f64
    }

    /// The published ratio to test 1.
    pub fn published_ratio(self) -> f64 {
        self.blocks_per_second / PUBLISHED_TESTS[0].blocks_per_second
    }

    /// The ratio to test 1 that is proportional to the write units, as the published page expects it.
    pub fn expected_ratio(self, factor: usize) -> f64 {
        let units = |test: PublishedTest| test.units_by_node(factor).iter().sum::<usize>() as f64;
        units(self) / units(PUBLISHED_TESTS[0])
    }
}

/// Shards of the table on a cluster that is smaller by `factor`.
pub fn shards(factor: usize) -> usize {
    SHARDS / factor
}

/// Parses one of [`FACTORS`].
pub fn factor(text: &str) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().filter(|number| FACTORS.contains(number));
    number.ok_or_else(|| {
        "the published tests are about halves of 32 and of 64 nodes: they can be divided by 1, 2, 4, 8 or 16".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_the_units_that_were_published() {
        let scaled = PUBLISHED_TESTS.map(|test| test.units_by_node(16));
        let wanted: [&[usize]; 6] = [&[2, 2], &[2, 3], &[2, 4], &[1, 1, 1, 1], &[2, 2, 2, 2], &[1, 1, 2, 2]];
        assert_eq!(scaled, wanted.map(<[usize]>::to_vec));
        let published = PUBLISHED_TESTS.map(|test| test.units_by_node(1).iter().sum::<usize>());
        assert_eq!(published, [64, 80, 96, 64, 128, 96]);
        assert_eq!(
            PUBLISHED_TESTS.map(|test| test.published_per_second(16)),
            [62.5, 75.0, 87.5, 62.5, 125.0, 93.75]
        );
    }

    #[test]
    fn a_factor_leaves_halves_and_ratios_as_they_were() {
        for factor in FACTORS {
            assert!(PUBLISHED_TESTS.iter().all(|test| test.nodes(factor) % 2 == 0));
            let expected = PUBLISHED_TESTS.map(|test| test.expected_ratio(factor));
            assert_eq!(expected, [1.0, 1.25, 1.5, 1.0, 2.0, 1.5], "factor {factor}");
            assert_eq!(
                shards(factor),
                PUBLISHED_TESTS[3].nodes(factor) / 2,
                "a node for each shard, and as many without"
            );
        }
        assert_eq!(PUBLISHED_TESTS.map(PublishedTest::published_ratio), [1.0, 1.2, 1.4, 1.0, 2.0, 1.5]);
        assert_eq!(factor("16"), Ok(16));
        for text in ["0", "3", "12", "32", "64", "x"] {
            assert!(factor(text).is_err_and(|why| why.ends_with("by 1, 2, 4, 8 or 16")), "{text}");
        }
    }
}
