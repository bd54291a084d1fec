//! Figures, checks and latencies of a result.

use super::load::Load;
use super::site::Site;
use crate::assemble::{Extras, RunDescription, assemble};
use crate::conditions::disturbed;
use crate::feeds::checker::Tally;
use crate::feeds::kind::FeedKind;
use crate::feeds::subscribers::Seen;
use crate::feeds::writes::Written;
use crate::measure::histogram;
use crate::result::{CheckOutcome, Figure, OperationResult, RunResult};

/// A figure without a bar.
pub(super) fn figure(name: &str, value: Option<f64>, unit: &str) -> Figure {
    Figure { name: name.to_owned(), value, unit: unit.to_owned(), bar: None, ok: None }
}

/// A figure that may be at most `bar`.
pub(super) fn at_most(name: &str, value: Option<f64>, unit: &str, bar: f64) -> Figure {
    Figure { bar: Some(bar), ok: value.map(|value| value <= bar), ..figure(name, value, unit) }
}

/// Checks that all feeds had every event once, in order, and did not end.
pub(super) fn completeness(tallies: &[(FeedKind, Tally)], seen: &Seen) -> Vec<CheckOutcome> {
    let all = total(tallies);
    let skipped: u64 = seen.skipped.iter().sum();
    let counts = [
        ("events that were missed", all.missed),
        ("events that came again", all.repeated),
        ("events that no write explains", all.unexpected),
        ("events after later ones of their document", all.out_of_order),
        ("events that the server dropped", skipped),
        ("feeds that ended", seen.ended.len() as u64),
    ];
    let source = format!("{} events of acknowledged writes", all.expected);
    let none = |(name, found): (&str, u64)| equal(name, 0, found, &source);
    let checks = counts.map(none).into_iter();
    checks
        .chain([CheckOutcome {
            ok: all.expected > 0,
            ..equal("events", all.expected, all.delivered, "acknowledged writes")
        }])
        .collect()
}

/// A smaller difference of processor time is no figure: the kernel counts hundredths of a second, and other programs
/// affect it.
const EXTRA_CPU_SECONDS_MIN: f64 = 0.1;

/// Processor time that `with` took beyond the same writes at the cost of `without`, by `events`, in microseconds;
/// `None` if it is too little for a figure.
pub(super) fn extra_cpu_us(with: &Load, without: &Load, events: u64) -> Option<f64> {
    let extra_us = (with.cpu_us_per_write()? - without.cpu_us_per_write()?) * with.writes() as f64;
    (events > 0 && extra_us >= EXTRA_CPU_SECONDS_MIN * 1e6).then(|| extra_us / events as f64)
}

/// From the last commit to the last event.
pub(super) fn lag_seconds(written: &[Written], seen: &Seen) -> f64 {
    let last_commit_ns = written.iter().map(|write| write.acknowledged_ns).max().unwrap_or(0);
    (seen.last_arrival_ns - last_commit_ns).max(0) as f64 / 1e9
}

/// A check that two counts are equal.
pub(super) fn equal(name: &str, expected: u64, found: u64, source: &str) -> CheckOutcome {
    CheckOutcome {
        name: name.to_owned(),
        expected: expected as f64,
        found: found as f64,
        ok: expected == found,
        source: source.to_owned(),
    }
}

/// The sum over all kinds.
pub(super) fn total(tallies: &[(FeedKind, Tally)]) -> Tally {
    tallies.iter().fold(Tally::default(), |mut sum, (_, tally)| {
        sum.add(tally);
        sum
    })
}

/// Assembles the result of `load`, with the deliveries of each kind of feed as kinds of operations: `service` counts
/// from the commit, `intended` from sending the write.
pub(super) fn result(
    site: &Site<'_>,
    about: RunDescription,
    load: Load,
    names: &[&str],
    tallies: &[(FeedKind, Tally)],
    checks: Vec<CheckOutcome>,
) -> RunResult {
    let extras = Extras { checks, write_names: &["WRITE"], ..Extras::default() };
    let others = load.others_core_share;
    let mut result = assemble(about, &load.plan, &site.sut, names, load.driven, extras);
    let seconds = result.time.measured_seconds;
    result.operations.extend(tallies.iter().map(|(kind, tally)| OperationResult {
        name: kind.operation(),
        ok: tally.delivered,
        failed: tally.missed,
        per_second: tally.delivered as f64 / seconds,
        service: histogram::latency(&tally.from_commit),
        intended: Some(histogram::latency(&tally.from_send)),
        failed_service: None,
        server_cpu_us_per_operation: None,
    }));
    result.notes.extend(total(tallies).first_wrong.map(|wrong| format!("the first wrong event: {wrong}")));
    result.alarms.extend(disturbed(&[others]));
    result
}
