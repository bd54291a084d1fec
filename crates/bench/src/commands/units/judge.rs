//! What must hold after a test, and what BigchainDB stated of its own.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::alarms;
use crate::blocks::placement::Roles;
use crate::result::{CheckOutcome, RunResult, ServerUse};
use crate::units_result::{RoleDisk, Untold};
use crate::wire::answer::FailureKind;

/// The one class of errors by which a server says that it has too much to do, and that it did nothing: it has no room
/// for the query. A write that was not carried out (`OP_FAILED`) or that perhaps was (`OP_INDETERMINATE`) met a table
/// that did not serve, which is what an overload must not lead to.
const REFUSAL: FailureKind = FailureKind::ResourceLimit;
/// Bytes written with two replicas by those with one may differ this much from two: logs are written in
/// steps, and blocks shrink unequally.
const TWICE: RangeInclusive<f64> = 1.5..=2.5;
/// So do bytes that are stated not to increase.
const ALIKE: RangeInclusive<f64> = 0.0..=1.25;
/// A test in which a node that holds the table wrote fewer bytes says nothing about [`TWICE`] and [`ALIKE`]: a server
/// writes a block once more when its memory for new rows is full, and in a short test chance decides whether that falls
/// into it.
const MANY_BYTES: f64 = 1e9;
const HOLDERS: [&str; 3] = [PRIMARIES, SECONDARIES, BOTH];
const PRIMARIES: &str = "primaries";
const SECONDARIES: &str = "secondaries";
const BOTH: &str = "both";
const NOTHING: &str = "nothing";

/// What one node wrote during a test.
pub(super) struct NodeDisk {
    name: String,
    written_bytes: Option<u64>,
    grown_bytes: i64,
}

/// What each node wrote, from its counters and from the bytes in its data folder before and after.
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

/// The same by what nodes hold of the table.
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

/// A check that wants the one number that it expects.
pub(super) fn equal(name: &str, expected: f64, found: f64) -> CheckOutcome {
    let source = "BigchainDB's tests".to_owned();
    CheckOutcome { name: name.to_owned(), expected, found, ok: expected == found, source }
}

/// What was found out about one test.
#[derive(Default)]
pub(super) struct Verdicts {
    checks: Vec<CheckOutcome>,
    untold: Vec<Untold>,
}

impl Verdicts {
    /// What must hold after every test: nodes live, every error was a refusal, acknowledged blocks are there.
    pub(super) fn survived(&mut self, result: &RunResult, alive: usize, there: f64) {
        let nodes = result.units.as_ref().map_or(0, |about| about.nodes);
        let unclear = result.errors.iter().filter(|error| error.kind != REFUSAL.name());
        let unclear: u64 = unclear.map(|error| error.count).sum();
        let wanted = result.throughput.operations as f64;
        self.checks.extend([
            equal("nodes alive", nodes as f64, alive as f64),
            equal(&format!("errors other than {}", REFUSAL.name()), 0.0, unclear as f64),
            equal("acknowledged blocks that are there", wanted, there.min(wanted)),
        ]);
    }

    /// With two replicas and a shard for every second node one half holds primaries, the other half the rest.
    pub(super) fn halves(&mut self, roles: &Roles, half: usize) {
        self.checks.extend([
            equal("nodes with primaries alone", half as f64, roles.only_primaries() as f64),
            equal("nodes with secondaries alone", half as f64, roles.only_secondaries() as f64),
        ]);
    }

    /// Nodes that hold primaries write no more for a block than they did in `other`.
    pub(super) fn primaries_write_alike(&mut self, result: &RunResult, other: &RunResult) {
        let name =
            format!("bytes written per block by nodes with primaries alone, by those in {}", other.label);
        self.compare(name, 1.0, &ALIKE, Written::of(result, &[PRIMARIES]), Written::of(other, &[PRIMARIES]));
    }

    /// All nodes together write twice as much for a block as they did in `single`.
    pub(super) fn twice_as_much(&mut self, result: &RunResult, single: &RunResult) {
        let name = format!("bytes written per block by all nodes, by those in {}", single.label);
        self.compare(name, 2.0, &TWICE, Written::of(result, &HOLDERS), Written::of(single, &HOLDERS));
    }

    fn compare(
        &mut self,
        name: String,
        expected: f64,
        allowed: &RangeInclusive<f64>,
        these: Option<Written>,
        those: Option<Written>,
    ) {
        let (found, why) = match these.zip(those) {
            None => (None, "what these nodes wrote is not known".to_owned()),
            Some((these, those)) => {
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
        self.untold.push(Untold { name, expected, found, why });
    }

    /// Puts all of it into the result.
    pub(super) fn settle(self, result: &mut RunResult) {
        result.checks.extend(self.checks);
        if let Some(about) = &mut result.units {
            about.untold.extend(self.untold);
        }
        result.alarms = alarms::raise(result);
    }
}

/// What nodes of some roles wrote during a test.
struct Written {
    per_block: f64,
    /// On average.
    by_node: f64,
}

impl Written {
    /// `None` where nothing was written, no node has such a role or one could not be watched.
    fn of(result: &RunResult, roles: &[&str]) -> Option<Self> {
        let disks = || {
            let disk = result.units.iter().flat_map(|about| &about.disk);
            disk.filter(|disk| roles.contains(&disk.role.as_str()))
        };
        let bytes = disks().map(|disk| disk.written_bytes).sum::<Option<u64>>()?;
        let nodes: usize = disks().map(|disk| disk.nodes.len()).sum();
        let blocks = result.throughput.operations;
        let is_told = bytes > 0 && blocks > 0 && nodes > 0;
        is_told.then(|| Written {
            per_block: bytes as f64 / blocks as f64,
            by_node: bytes as f64 / nodes as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::assemble::{About, blank};
    use crate::result::ErrorTally;
    use crate::units_result::UnitsTest;

    /// A test in which nodes of these roles wrote so many megabytes each, for a hundred blocks.
    fn result(test: &str, megabytes: &[(&str, u64)]) -> RunResult {
        let mut result = blank(About {
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
            untold: Vec::new(),
        });
        result
    }

    /// What comes of both statements about two replicas.
    fn told(single: u64, primaries: u64, secondaries: u64) -> String {
        let single = result("test 4", &[(PRIMARIES, single), (NOTHING, 0)]);
        let mut double = result("replicated", &[(PRIMARIES, primaries), (SECONDARIES, secondaries)]);
        let mut verdicts = Verdicts::default();
        verdicts.primaries_write_alike(&double, &single);
        verdicts.twice_as_much(&double, &single);
        verdicts.settle(&mut double);
        let checks = double.checks.iter().map(|check| format!("{:.2} {}", check.found, check.ok));
        let untold = double.units.iter().flat_map(|about| &about.untold).map(|one| one.why.clone());
        checks.chain(untold).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn statements_about_disks_pass_fail_or_are_not_told() {
        assert_eq!(told(2_000, 2_100, 2_000), "1.05 true, 2.05 true");
        assert_eq!(told(2_000, 3_000, 2_500), "1.50 false, 2.75 false");
        let few = "too little written: 44 MB by each node, it takes 1000";
        assert_eq!(told(44, 2_000, 2_000), format!("{few}, {few}"));
        let nothing = "what these nodes wrote is not known";
        assert_eq!(told(0, 2_000, 2_000), format!("{nothing}, {nothing}"));
    }

    #[test]
    fn nodes_are_told_by_what_they_hold() {
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

    #[test]
    fn only_a_server_without_room_refuses_clearly() {
        let error = |kind: FailureKind| ErrorTally {
            operation: "INSERT-BLOCK".to_owned(),
            kind: kind.name().to_owned(),
            count: 3,
            first_message: String::new(),
        };
        let unclear = |kind: FailureKind| {
            let mut overload = result("overload", &[]);
            overload.errors = vec![error(kind)];
            let mut verdicts = Verdicts::default();
            verdicts.survived(&overload, 4, 100.0);
            verdicts.checks.iter().filter(|check| !check.ok).map(|check| check.found).sum::<f64>()
        };
        assert_eq!(unclear(FailureKind::ResourceLimit), 0.0);
        for kind in [FailureKind::OpFailed, FailureKind::OpIndeterminate, FailureKind::ConnectionLost] {
            assert_eq!(unclear(kind), 3.0, "{}", kind.name());
        }
    }
}
