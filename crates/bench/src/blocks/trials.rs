//! BigchainDB's tests of 2016 with nodes and write units divided by one factor.
//!
//! Source: BigchainDB 0.0.1, "RethinkDB benchmarks", tests 1 to 6.

/// Blocks per second of one write unit in test 1, from which the published page expects the others.
pub const BLOCKS_PER_UNIT: f64 = 1_000.0 / 64.0;
/// Shards of the published table.
const SHARDS: usize = 32;

/// One published test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Its number.
    pub number: u32,
    /// Servers.
    pub nodes: usize,
    /// Write units of all servers together.
    pub units: usize,
    /// Blocks per second that were measured.
    pub blocks_per_second: f64,
}

/// The published tests, at their published size.
pub const TRIALS: [Trial; 6] = [
    Trial { number: 1, nodes: 32, units: 64, blocks_per_second: 1_000.0 },
    Trial { number: 2, nodes: 32, units: 80, blocks_per_second: 1_200.0 },
    Trial { number: 3, nodes: 32, units: 96, blocks_per_second: 1_400.0 },
    Trial { number: 4, nodes: 64, units: 64, blocks_per_second: 1_000.0 },
    Trial { number: 5, nodes: 64, units: 128, blocks_per_second: 2_000.0 },
    Trial { number: 6, nodes: 64, units: 96, blocks_per_second: 1_500.0 },
];

impl Trial {
    /// The same test on a cluster `factor` times smaller.
    pub fn scaled(self, factor: usize) -> Trial {
        let part = |whole: usize| (whole / factor).max(1);
        Trial { nodes: part(self.nodes), units: part(self.units), ..self }
    }

    /// Measured blocks per second by those of test 1, as published.
    pub fn published_ratio(self) -> f64 {
        self.blocks_per_second / TRIALS[0].blocks_per_second
    }

    /// The same, as the published page expected it: in proportion to the units.
    pub fn expected_ratio(self) -> f64 {
        self.units as f64 / TRIALS[0].units as f64
    }
}

/// Shards of the table on a cluster `factor` times smaller.
pub fn shards(factor: usize) -> usize {
    (SHARDS / factor).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_factor_scales_nodes_units_and_shards() {
        let scaled: Vec<(usize, usize)> = TRIALS.map(|t| t.scaled(16)).map(|t| (t.nodes, t.units)).into();
        assert_eq!(scaled, [(2, 4), (2, 5), (2, 6), (4, 4), (4, 8), (4, 6)]);
        assert_eq!((shards(16), shards(64)), (2, 1));
        assert_eq!((TRIALS[1].published_ratio(), TRIALS[1].expected_ratio()), (1.2, 1.25));
    }
}
