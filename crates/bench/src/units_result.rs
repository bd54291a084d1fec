//! The additions of `bench units` to the results of its tests: the member `units` of `docs/formats/bench-result.md`.
//!
//! The command writes it, and the report reads it. No logic here.

use serde::{Deserialize, Serialize};

/// One test of `bench units`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitsTest {
    /// Identical in all results of one command.
    pub session: String,
    /// `test 1` to `test 6`, `overload`, `replicated`.
    pub test: String,
    /// The divisor of the published clusters.
    pub factor: usize,
    /// Number of servers.
    pub nodes: usize,
    /// Share of one core for each node; null without limits.
    pub core_share: Option<f64>,
    /// Write units of each node.
    pub units_by_node: Vec<usize>,
    /// Ratio of blocks per second to test 1; null if one of the two is no figure, which a note explains.
    pub by_test_1: Option<f64>,
    /// The expected ratio, in proportion to the units; null for tests that were not published.
    pub expected_by_test_1: Option<f64>,
    /// The published ratio.
    pub published_by_test_1: Option<f64>,
    /// Published blocks per second, divided by `factor`.
    pub published_per_second: Option<f64>,
    /// Bytes written by nodes, by their role in the table; roles without nodes are omitted.
    pub disk: Vec<RoleDisk>,
    /// Checks without a verdict, with the reasons.
    #[serde(rename = "untold")]
    pub unverified: Vec<UnverifiedCheck>,
}

/// The disk use of all nodes of one role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleDisk {
    /// `primaries`, `secondaries`, `both`, `nothing`.
    pub role: String,
    /// Their names.
    pub nodes: Vec<String>,
    /// Bytes that they wrote in the measured part; null if one of them could not be watched.
    pub written_bytes: Option<u64>,
    /// Growth of their data folders from before the creation of the table to the end of the test.
    pub grown_bytes: i64,
}

/// A check without a verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnverifiedCheck {
    /// The checked statement.
    pub name: String,
    pub expected: f64,
    /// The measured value, which may be inaccurate; null if there is none.
    pub found: Option<f64>,
    /// Why there is no verdict.
    pub why: String,
}
