//! Checks after a test: what must always hold, and what BigchainDB stated about its own tests.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use client::answer::FailureKind;

use crate::alarms;
use crate::blocks::placement::Roles;
use crate::result::{CheckOutcome, RunResult, ServerUse};
use crate::units_result::{RoleDisk, UnverifiedCheck};

/// The only class of errors by which a server rejects a query for lack of memory, without having done anything. A write
/// that was not carried out (`OP_FAILED`) or perhaps was (`OP_INDETERMINATE`) met a table that was not available, and
/// an overload must not lead to that.
const REFUSAL: FailureKind = FailureKind::ResourceLimit;
/// Allowed ratio of bytes written with two replicas to those with one, expected to be two: logs are written in steps,
/// and blocks compress unequally.
const TWICE: RangeInclusive<f64> = 1.5..=2.5;
/// Allowed ratio of bytes that are stated not to increase.
const ALIKE: RangeInclusive<f64> = 0.0..=1.25;
/// If a node that holds the table wrote fewer bytes, [`TWICE`] and [`ALIKE`] are not checked: a server writes rows a
/// second time when its memory for new rows is full, and in a short test it is a matter of chance whether that happens.
const MANY_BYTES: f64 = 1e9;
/// The reason in an [`UnverifiedCheck`] about roles.
const UNKNOWN_ROLES: &str = "the cluster does not report the replicas of each server";
const HOLDERS: [&str; 3] = [PRIMARIES, SECONDARIES, BOTH];
const PRIMARIES: &str = "primaries";
const SECONDARIES: &str = "secondaries";
const BOTH: &str = "both";
const NOTHING: &str = "nothing";

/// Disk use of one node during a test.
pub(super) struct NodeDisk {
    name: String,
    written_bytes: Option<u64>,
    grown_bytes: i64,
}

/// The disk use of each node, from its counters and from the size of its data folder before and after.
pub(super) fn node_disks(
    names: &[String],
    servers: &[ServerUse],
    before: &[u64],
    after: &[u64],
) -> Vec<NodeDisk> {
    let sizes = before.iter().zip(after);
    let all = names.iter().zip(servers).zip(sizes);
    all.map(|((name, server), (before, after))| NodeDisk {
        name: name.clone(),
        written_bytes: server.written_bytes,
        grown_bytes: *after as i64 - *before as i64,
    })
    .collect()
}

/// The disk use by role of the nodes in the table.
pub(super) fn by_role(roles: &Roles, nodes: &[NodeDisk]) -> Vec<RoleDisk> {
    let role_of = |name: &str| match (roles.primaries.contains(name), roles.secondaries.contains(name)) {
        (true, false) => PRIMARIES,
        (false, true) => SECONDARIES,
        (true, true) => BOTH,
        (false, false) => NOTHING,
    };
    let there: BTreeSet<&str> = nodes.iter().map(|node| role_of(&node.name)).collect();
    let disk = |role: &str| {
        let of_role = || nodes.iter().filter(|node| role_of(&node.name) == role);
        RoleDisk {
            role: role.to_owned(),
            nodes: of_role().map(|node| node.name.clone()).collect(),
            written_bytes: of_role().map(|node| node.written_bytes).sum(),
            grown_bytes: of_role().map(|node| node.grown_bytes).sum(),
        }
    };
    let all = [PRIMARIES, SECONDARIES, BOTH, NOTHING];
    all.into_iter().filter(|role| there.contains(role)).map(disk).collect()
}

/// A check that requires exactly the expected number.
pub(super) fn equal(name: &str, expected: f64, found: f64) -> CheckOutcome {
    let source = "BigchainDB's tests".to_owned();
    CheckOutcome { name: name.to_owned(), expected, found, ok: expected == found, source }
}

/// The ratio of a test with this `rate` to test 1. Fails with a reason if either has no figure; `first` is the rate of
/// test 1 or the reason why it has none.
pub(super) fn by_test_1(
    rate: f64,
    why_no_figure: Option<&str>,
    first: Result<f64, &str>,
) -> Result<f64, String> {
    match (why_no_figure, first) {
        (Some(why), _) => {
            Err(format!("its blocks per second are invalid, and have no ratio to test 1: {why}"))
        }
        (None, Err(why)) => Err(format!("no ratio to test 1, whose blocks per second are invalid: {why}")),
        (None, Ok(first)) => Ok(rate / first),
    }
}

/// A note about an overload: whether it led to rejections.
pub(super) fn refusals(result: &RunResult) -> String {
    let refused = result.errors.iter().filter(|error| error.kind == REFUSAL.name());
    let refused: u64 = refused.map(|error| error.count).sum();
    let (units, blocks) = (result.pacing.connections, result.throughput.operations);
    match (refused, result.errors.is_empty()) {
        (0, true) => {
            let longest =
                result.operations.iter().filter_map(|one| one.service.max_us).fold(0.0, f64::max) / 1e6;
            format!(
                "no refusal was seen: the {units} write units were answered by queueing, the slowest block after \
                 {longest:.1} s; how the servers refuse is not shown by this (a larger --overload may)"
            )
        }
        (0, false) => "no clear refusal was seen, only other errors".to_owned(),
        (refused, _) => {
            format!(
                "{refused} clear refusals ({}) were seen, and {blocks} blocks acknowledged",
                REFUSAL.name()
            )
        }
    }
}

/// An earlier test, for comparison.
pub(super) struct Base<'a> {
    pub(super) result: &'a RunResult,
    /// Why one of the two has no figure, if so.
    pub(super) why_none: Option<String>,
}

impl Base<'_> {
    /// The bytes that nodes of these roles wrote in `result` and in the earlier test, or why they are unknown.
    fn written(&self, result: &RunResult, roles: &[&str]) -> Result<[Written; 2], String> {
        if let Some(why) = &self.why_none {
            return Err(why.clone());
        }
        let both = Written::of(result, roles).zip(Written::of(self.result, roles));
        both.map(|(these, those)| [these, those])
            .ok_or_else(|| "the bytes that these nodes wrote are unknown".to_owned())
    }
}

/// The checks of one test.
#[derive(Default)]
pub(super) struct Verdicts {
    checks: Vec<CheckOutcome>,
    unverified: Vec<UnverifiedCheck>,
}

impl Verdicts {
    /// Checks that must pass after every test: all nodes are alive, every error was a rejection, all acknowledged
    /// blocks exist. If the cluster cannot count its blocks, a separate check fails, because it is not known whether
    /// any is missing.
    pub(super) fn survived(&mut self, result: &RunResult, alive: usize, there: Result<f64, &anyhow::Error>) {
        let nodes = result.units.as_ref().map_or(0, |about| about.nodes);
        let unclear = result.errors.iter().filter(|error| error.kind != REFUSAL.name());
        let unclear: u64 = unclear.map(|error| error.count).sum();
        let wanted = result.throughput.operations as f64;
        self.checks.extend([
            equal("nodes alive", nodes as f64, alive as f64),
            equal(&format!("errors other than {}", REFUSAL.name()), 0.0, unclear as f64),
        ]);
        let name = "acknowledged blocks that are there";
        match there {
            Ok(there) => self.checks.push(equal(name, wanted, there.min(wanted))),
            Err(error) => {
                self.checks.push(equal("answers to how many blocks are there", 1.0, 0.0));
                let why = format!("they could not be counted: {error:#}");
                self.unverified.push(UnverifiedCheck {
                    name: name.to_owned(),
                    expected: wanted,
                    found: None,
                    why,
                });
            }
        }
    }

    /// Why the blocks per second of `result` are no figure, if a check so far has failed.
    pub(super) fn why_no_figure(&self, result: &RunResult) -> Option<String> {
        let broken = self.checks.iter().find(|check| !check.ok);
        let broken =
            broken.map(|check| format!("{}: expected {}, found {}", check.name, check.expected, check.found));
        broken.or_else(|| (result.throughput.operations == 0).then(|| "no block was acknowledged".to_owned()))
    }

    /// With two replicas and one shard for every second node, one half of the nodes holds the primaries and the other
    /// the secondaries.
    pub(super) fn halves(&mut self, roles: Option<&Roles>, half: usize) {
        let [primaries, secondaries] = ["nodes with primaries alone", "nodes with secondaries alone"];
        match roles {
            Some(roles) => self.checks.extend([
                equal(primaries, half as f64, roles.only_primaries() as f64),
                equal(secondaries, half as f64, roles.only_secondaries() as f64),
            ]),
            None => {
                self.checks.push(equal("answers to which server holds which replica", 1.0, 0.0));
                self.unverified.extend([primaries, secondaries].map(|name| UnverifiedCheck {
                    name: name.to_owned(),
                    expected: half as f64,
                    found: None,
                    why: UNKNOWN_ROLES.to_owned(),
                }));
            }
        }
    }

    /// Checks that nodes with primaries write no more bytes per block than in `other`.
    pub(super) fn primaries_write_alike(&mut self, result: &RunResult, other: &Base) {
        let label = &other.result.label;
        let name = format!("bytes written per block by nodes with primaries alone, by those in {label}");
        self.compare(name, 1.0, &ALIKE, other.written(result, &[PRIMARIES]));
    }

    /// Checks that all nodes together write twice as many bytes per block as in `single`.
    pub(super) fn twice_as_much(&mut self, result: &RunResult, single: &Base) {
        let name = format!("bytes written per block by all nodes, by those in {}", single.result.label);
        self.compare(name, 2.0, &TWICE, single.written(result, &HOLDERS));
    }

    fn compare(
        &mut self,
        name: String,
        expected: f64,
        allowed: &RangeInclusive<f64>,
        written: Result<[Written; 2], String>,
    ) {
        let (found, why) = match written {
            Err(why) => (None, why),
            Ok([these, those]) => {
                let found = these.per_block / those.per_block;
                let by_node = these.by_node.min(those.by_node);
                if by_node >= MANY_BYTES {
                    let name = format!("{name} ({} to {} pass)", allowed.start(), allowed.end());
                    let check = equal(&name, expected, found);
                    self.checks.push(CheckOutcome { ok: allowed.contains(&found), ..check });
                    return;
                }
                let (wrote, wanted) = (by_node / 1e6, MANY_BYTES / 1e6);
                (Some(found), format!("too little written: {wrote:.0} MB by each node, it takes {wanted:.0}"))
            }
        };
        self.unverified.push(UnverifiedCheck { name, expected, found, why });
    }

    /// Adds all checks to the result.
    pub(super) fn settle(self, result: &mut RunResult) {
        result.checks.extend(self.checks);
        if let Some(about) = &mut result.units {
            about.unverified.extend(self.unverified);
        }
        alarms::renew(result);
    }
}

/// Bytes that nodes of some roles wrote during a test.
struct Written {
    per_block: f64,
    /// Mean per node.
    by_node: f64,
}

impl Written {
    /// `None` if nothing was written, no node has such a role, or one could not be watched.
    fn of(result: &RunResult, roles: &[&str]) -> Option<Self> {
        let disks = || {
            let disk = result.units.iter().flat_map(|about| &about.disk);
            disk.filter(|disk| roles.contains(&disk.role.as_str()))
        };
        let bytes = disks().map(|disk| disk.written_bytes).sum::<Option<u64>>()?;
        let nodes: usize = disks().map(|disk| disk.nodes.len()).sum();
        let blocks = result.throughput.operations;
        let is_known = bytes > 0 && blocks > 0 && nodes > 0;
        is_known.then(|| Written {
            per_block: bytes as f64 / blocks as f64,
            by_node: bytes as f64 / nodes as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::assemble::{RunDescription, blank};
    use crate::result::ErrorTally;
    use crate::units_result::UnitsTest;

    /// A test in which nodes of these roles wrote this many megabytes each, for a hundred blocks.
    fn result(test: &str, megabytes: &[(&str, u64)]) -> RunResult {
        let mut result = blank(RunDescription {
            kind: "blocks",
            workload: String::new(),
            name: String::new(),
            label: test.to_owned(),
            published: None,
            seed: 1,
            settings: serde_json::Map::new(),
            notes: Vec::new(),
            started: SystemTime::now(),
        });
        result.throughput.operations = 100;
        let disk = |(role, megabytes): &(&str, u64)| RoleDisk {
            role: (*role).to_owned(),
            nodes: vec!["a".to_owned(), "b".to_owned()],
            written_bytes: Some(2 * megabytes * 1_000_000),
            grown_bytes: 0,
        };
        result.units = Some(UnitsTest {
            session: String::new(),
            test: test.to_owned(),
            factor: 16,
            nodes: 4,
            core_share: None,
            units_by_node: vec![1; 4],
            by_test_1: None,
            expected_by_test_1: None,
            published_by_test_1: None,
            published_per_second: None,
            disk: megabytes.iter().map(disk).collect(),
            unverified: Vec::new(),
        });
        result
    }

    /// The outcome of both checks about two replicas.
    fn disk_checks(single: u64, primaries: u64, secondaries: u64) -> String {
        disk_checks_unless(None, single, primaries, secondaries)
    }

    fn disk_checks_unless(why_none: Option<String>, single: u64, primaries: u64, secondaries: u64) -> String {
        let single = result("test 4", &[(PRIMARIES, single), (NOTHING, 0)]);
        let mut double = result("replicated", &[(PRIMARIES, primaries), (SECONDARIES, secondaries)]);
        let mut verdicts = Verdicts::default();
        let single = Base { result: &single, why_none };
        verdicts.primaries_write_alike(&double, &single);
        verdicts.twice_as_much(&double, &single);
        verdicts.settle(&mut double);
        let checks = double.checks.iter().map(|check| format!("{:.2} {}", check.found, check.ok));
        let unverified = double.units.iter().flat_map(|about| &about.unverified).map(|one| one.why.clone());
        checks.chain(unverified).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn disk_checks_pass_fail_or_are_unverified() {
        assert_eq!(disk_checks(2_000, 2_100, 2_000), "1.05 true, 2.05 true");
        assert_eq!(disk_checks(2_000, 3_000, 2_500), "1.50 false, 2.75 false");
        let few = "too little written: 44 MB by each node, it takes 1000";
        assert_eq!(disk_checks(44, 2_000, 2_000), format!("{few}, {few}"));
        let nothing = "the bytes that these nodes wrote are unknown";
        assert_eq!(disk_checks(0, 2_000, 2_000), format!("{nothing}, {nothing}"));
        let broken = "test 4 is invalid";
        let said = disk_checks_unless(Some(broken.to_owned()), 2_000, 2_100, 2_000);
        assert_eq!(said, format!("{broken}, {broken}"), "with a broken test nothing is compared");
    }

    #[test]
    fn nodes_are_grouped_by_their_replicas() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let roles = Roles { primaries: set(&["n0", "n2"]), secondaries: set(&["n1", "n2"]) };
        let names = ["n0", "n1", "n2", "n3"].map(str::to_owned);
        let servers = [Some(10), Some(20), Some(30), None]
            .map(|written_bytes| ServerUse { written_bytes, ..ServerUse::default() });
        let disks = by_role(&roles, &node_disks(&names, &servers, &[5; 4], &[9, 8, 7, 4]));
        let seen = disks.iter().map(|disk| (disk.role.as_str(), disk.written_bytes, disk.grown_bytes));
        let wanted =
            [(PRIMARIES, Some(10), 4), (SECONDARIES, Some(20), 3), (BOTH, Some(30), 2), (NOTHING, None, -1)];
        assert_eq!(seen.collect::<Vec<_>>(), wanted);
        let alone = by_role(
            &Roles { primaries: set(&["n0"]), ..Roles::default() },
            &node_disks(&names[..1], &servers, &[0], &[1]),
        );
        assert_eq!(alone.len(), 1);
    }

    fn error(kind: FailureKind) -> ErrorTally {
        ErrorTally {
            operation: "INSERT-BLOCK".to_owned(),
            kind: kind.name().to_owned(),
            count: 3,
            first_message: String::new(),
        }
    }

    #[test]
    fn a_broken_test_is_no_figure_and_no_base_of_others() {
        let why_none = |alive: usize| {
            let mut verdicts = Verdicts::default();
            let first = result("test 1", &[]);
            verdicts.survived(&first, alive, Ok(100.0));
            verdicts.why_no_figure(&first)
        };
        assert_eq!(why_none(4), None);
        let why = why_none(3).expect("a node was lost");
        assert_eq!(why, "nodes alive: expected 4, found 3");
        assert_eq!(by_test_1(30.0, None, Ok(20.0)), Ok(1.5));
        let said = by_test_1(30.0, None, Err(&why)).expect_err("its base is broken");
        assert_eq!(said, format!("no ratio to test 1, whose blocks per second are invalid: {why}"));
        let said = by_test_1(30.0, Some(&why), Ok(20.0)).expect_err("it is broken");
        assert!(said.starts_with("its blocks per second are invalid"), "{said}");
    }

    #[test]
    fn blocks_that_could_not_be_counted_are_not_missing() {
        let mut test = result("test 3", &[]);
        let mut verdicts = Verdicts::default();
        verdicts.survived(&test, 4, Err(&anyhow::anyhow!("connection refused")));
        assert!(verdicts.why_no_figure(&test).is_some(), "it did not survive");
        verdicts.settle(&mut test);
        let failed: Vec<&str> =
            test.checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str()).collect();
        assert_eq!(failed, ["answers to how many blocks are there"]);
        let unverified = &test.units.as_ref().expect("a test").unverified[0];
        assert_eq!(unverified.name, "acknowledged blocks that are there");
        assert_eq!((unverified.expected, unverified.found), (100.0, None));
        assert_eq!(unverified.why, "they could not be counted: connection refused");
    }

    #[test]
    fn an_overload_without_refusals_says_so() {
        let mut overload = result("overload", &[]);
        assert!(refusals(&overload).starts_with("no refusal was seen: "));
        overload.errors = vec![error(FailureKind::OpFailed)];
        assert_eq!(refusals(&overload), "no clear refusal was seen, only other errors");
        overload.errors.push(error(FailureKind::ResourceLimit));
        let said = "3 clear refusals (RESOURCE_LIMIT) were seen, and 100 blocks acknowledged";
        assert_eq!(refusals(&overload), said);
    }

    #[test]
    fn halves_of_a_cluster_without_a_report_are_unverified() {
        let mut verdicts = Verdicts::default();
        verdicts.halves(None, 2);
        assert!(verdicts.unverified.iter().all(|one| one.why == UNKNOWN_ROLES));
        assert_eq!(verdicts.unverified.len(), 2);
        let failed = verdicts.checks.iter().map(|check| (check.name.as_str(), check.ok));
        assert_eq!(failed.collect::<Vec<_>>(), [("answers to which server holds which replica", false)]);
    }

    #[test]
    fn only_a_server_without_room_refuses_clearly() {
        let unclear = |kind: FailureKind| {
            let mut overload = result("overload", &[]);
            overload.errors = vec![error(kind)];
            let mut verdicts = Verdicts::default();
            verdicts.survived(&overload, 4, Ok(100.0));
            verdicts.checks.iter().filter(|check| !check.ok).map(|check| check.found).sum::<f64>()
        };
        assert_eq!(unclear(FailureKind::ResourceLimit), 0.0);
        for kind in [FailureKind::OpFailed, FailureKind::OpIndeterminate, FailureKind::ConnectionLost] {
            assert_eq!(unclear(kind), 3.0, "{}", kind.name());
        }
    }
}
