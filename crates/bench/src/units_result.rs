//! What `bench units` adds to the result of each of its tests: the member `units` of `docs/formats/bench-result.md`.
//!
//! Written by the command, read by the report. No logic here.

use serde::{Deserialize, Serialize};

/// One test of `bench units`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitsTest {
    /// The same in all results of one command.
    pub session: String,
    /// `test 1` to `test 6`, `overload`, `replicated`.
    pub test: String,
    /// By what the published clusters were divided.
    pub factor: usize,
    /// Servers.
    pub nodes: usize,
    /// Of one core, for each node; null without limits.
    pub core_share: Option<f64>,
    /// Write units of each node.
    pub units_by_node: Vec<usize>,
    /// Blocks per second by those of test 1; null when one of both is no figure, which a note says.
    pub by_test_1: Option<f64>,
    /// The same in proportion to the units; null for what is no published test.
    pub expected_by_test_1: Option<f64>,
    /// The same as it was published.
    pub published_by_test_1: Option<f64>,
    /// Published blocks per second, divided by `factor`.
    pub published_per_second: Option<f64>,
    /// What nodes wrote, by what they held of the table; roles that no node had are left out.
    pub disk: Vec<RoleDisk>,
    /// What could not be told about this test, with why.
    pub untold: Vec<Untold>,
}

/// The disks of all nodes of one role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleDisk {
    /// `primaries`, `secondaries`, `both`, `nothing`.
    pub role: String,
    /// Their names.
    pub nodes: Vec<String>,
    /// What they wrote in the measured part; null when one of them could not be watched.
    pub written_bytes: Option<u64>,
    /// How much their data folders grew from before the table was made to the end of the test.
    pub grown_bytes: i64,
}

/// A statement that could not be checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Untold {
    /// What is stated.
    pub name: String,
    /// What should come out.
    pub expected: f64,
    /// What came out, for what it is worth; null when nothing did.
    pub found: Option<f64>,
    /// What was missing.
    pub why: String,
}
