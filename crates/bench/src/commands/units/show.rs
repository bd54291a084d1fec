//! The tests as text.

use crate::result::RunResult;
use crate::terminal::thousands;
use crate::units_result::UnitsTest;

/// A table of all tests, then the checks, then the notes and alarms.
pub(super) fn table(done: &[RunResult]) -> String {
    if done.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "{:<12}{:>6}{:>7}{:>10}{:>11}{:>9}{:>10}{:>10}{:>11}{:>9}{:>9}{:>7}\n",
        "",
        "nodes",
        "units",
        "blocks/s",
        "tx/s",
        "by test1",
        "expected",
        "published",
        "variation",
        "lowest",
        "last/1st",
        "errors"
    );
    let tests = || done.iter().filter_map(|result| Some((result, result.units.as_ref()?)));
    tests().for_each(|(result, about)| out.push_str(&line(result, about)));
    tests().for_each(|(_, about)| out.push_str(&disks(about)));
    for (result, about) in tests() {
        for check in &result.checks {
            let verdict = if check.ok { "pass" } else { "FAIL" };
            let (found, wanted) = (check.found, check.expected);
            out.push_str(&format!(
                "{verdict}  {}: {}: {found:.2}, expected {wanted}\n",
                result.label, check.name
            ));
        }
        for one in &about.unverified {
            let found = two(one.found);
            out.push_str(&format!(
                "????  {}: {}: {found}, expected {}; {}\n",
                result.label, one.name, one.expected, one.why
            ));
        }
        result.notes.iter().for_each(|note| out.push_str(&format!("note  {}: {note}\n", result.label)));
        result.alarms.iter().for_each(|a| out.push_str(&format!("ALARM {}: {}\n", result.label, a.message)));
    }
    out
}

fn two(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.2}"))
}

fn line(result: &RunResult, about: &UnitsTest) -> String {
    let transactions = result.throughput.units.iter().find(|unit| unit.name == "transactions");
    let stability = result.stability.as_ref();
    format!(
        "{:<12}{:>6}{:>7}{:>10.1}{:>11}{:>9}{:>10}{:>10}{:>11}{:>9}{:>9}{:>7}\n",
        result.label,
        about.nodes,
        result.pacing.connections,
        result.throughput.operations_per_second,
        thousands(transactions.map_or(0.0, |unit| unit.per_second) as u64),
        two(about.by_test_1),
        two(about.expected_by_test_1),
        two(about.published_by_test_1),
        two(stability.map(|s| s.variation)),
        two(stability.map(|s| s.lowest_share)),
        two(stability.and_then(|s| s.last_by_first)),
        result.errors.iter().map(|error| error.count).sum::<u64>(),
    )
}

fn disks(about: &UnitsTest) -> String {
    let megabytes = |bytes: f64| format!("{:.0} MB", bytes / 1e6);
    let mut out = String::new();
    for disk in &about.disk {
        let written =
            disk.written_bytes.map_or("an unknown amount".to_owned(), |bytes| megabytes(bytes as f64));
        let (nodes, grown) = (disk.nodes.len(), megabytes(disk.grown_bytes as f64));
        out.push_str(&format!(
            "disk  {}: {} ({nodes} nodes): {written} written, data folders grew by {grown}\n",
            about.test, disk.role
        ));
    }
    out
}
