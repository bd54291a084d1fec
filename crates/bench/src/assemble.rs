//! Assembles the result of a run.

use std::time::SystemTime;

use serde_json::{Map, Value};

use crate::alarms;
use crate::drive::arrivals::Spacing;
use crate::drive::session::{Driven, LoopKind, Plan};
use crate::machine::watch::Sample;
use crate::machine::{facts, own_process};
use crate::measure::histogram;
use crate::measure::interval::KindLatencies;
use crate::measure::stability::stability;
use crate::result::*;
use crate::rng::Rng;
use crate::secrets;
use crate::sut::{BENCH_VERSION, SystemUnderTest};

/// The description of a run, known to its command in advance.
#[derive(Clone, Debug)]
pub struct RunDescription {
    /// The kind of the result.
    pub kind: &'static str,
    /// The workload, for the result's id.
    pub workload: String,
    /// The title.
    pub name: String,
    /// The value of `--label`.
    pub label: String,
    /// The published series to compare with.
    pub published: Option<Published>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The settings in effect.
    pub settings: Map<String, Value>,
    /// Remarks that are needed to read the numbers.
    pub notes: Vec<String>,
    pub started: SystemTime,
}

/// Optional parts of a result.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Names and totals of units other than operations.
    pub units: Vec<(&'static str, u64)>,
    /// Operations that are acknowledged writes, by name.
    pub write_names: &'static [&'static str],
    /// Timings of a repeated query.
    pub runs: Vec<TimedRun>,
    /// Checked answers.
    pub checks: Vec<CheckOutcome>,
    /// The outcome of `dataintegrity`.
    pub integrity: Option<Integrity>,
    /// The client's ceiling.
    pub echo: Option<EchoBaseline>,
}

/// Assembles the result of a run and computes its alarms.
pub fn assemble(
    about: RunDescription,
    plan: &Plan,
    sut: &SystemUnderTest,
    names: &[&str],
    mut driven: Driven,
    extras: Extras,
) -> RunResult {
    let seconds = driven.measured_seconds;
    let operations = operations(names, &driven, seconds);
    let servers: Vec<ServerUse> = sut
        .watched
        .iter()
        .zip(&driven.server_samples)
        .map(|(server, (before, after))| server.used(before, after, seconds))
        .collect();
    let throughput = throughput(&driven, &extras, seconds);
    let client = client(&driven, seconds);
    let is_write = |o: &&OperationResult| extras.write_names.contains(&o.name.as_str());
    let writes = operations.iter().filter(is_write).map(|o| o.ok).sum();
    let series = series(std::mem::take(&mut driven.points), seconds);
    let mut result = RunResult {
        format: FORMAT.to_owned(),
        format_version: FORMAT_VERSION,
        id: id(&about),
        kind: about.kind.to_owned(),
        name: about.name,
        label: about.label,
        command: command(),
        started_at: facts::rfc3339(about.started),
        ended_at: facts::rfc3339(SystemTime::now()),
        published: about.published,
        seed: about.seed.to_string(),
        settings: about.settings,
        notes: about.notes,
        pacing: pacing(plan, &driven),
        time: Times {
            warmup_seconds: plan.warmup.as_secs_f64(),
            measured_seconds: seconds,
            drain_seconds: driven.drain_seconds,
        },
        cost: cost(&throughput, &client, &servers),
        throughput,
        operations,
        errors: errors(names, &driven),
        units: None,
        figures: Vec::new(),
        runs: extras.runs,
        checks: extras.checks,
        verification: verification(&driven, extras.integrity),
        client,
        log: log(&driven.server_samples, writes),
        servers,
        echo: extras.echo,
        stability: stability(&series.points),
        series,
        machine: facts::machine(sut.is_local),
        versions: sut.versions.clone(),
        alarms: Vec::new(),
    };
    result.alarms = alarms::raise(&result);
    result
}

/// A result without measurements.
pub fn blank(about: RunDescription) -> RunResult {
    RunResult {
        format: FORMAT.to_owned(),
        format_version: FORMAT_VERSION,
        id: id(&about),
        kind: about.kind.to_owned(),
        name: about.name,
        label: about.label,
        command: command(),
        started_at: facts::rfc3339(about.started),
        ended_at: facts::rfc3339(SystemTime::now()),
        published: about.published,
        seed: about.seed.to_string(),
        settings: about.settings,
        notes: about.notes,
        pacing: Pacing::default(),
        time: Times::default(),
        throughput: Throughput::default(),
        operations: Vec::new(),
        errors: Vec::new(),
        series: Series { interval_seconds: 1.0, points: Vec::new() },
        stability: None,
        units: None,
        figures: Vec::new(),
        runs: Vec::new(),
        checks: Vec::new(),
        verification: Verification::default(),
        client: ClientUse::default(),
        servers: Vec::new(),
        log: None,
        cost: Cost::default(),
        echo: None,
        machine: facts::machine(true),
        versions: Versions { bench: BENCH_VERSION.to_owned(), ..Versions::default() },
        alarms: Vec::new(),
    }
}

/// The points of a run. A last second of which less than half was measured is dropped: its small count would look like
/// a collapse.
pub fn series(mut points: Vec<Point>, measured_seconds: f64) -> Series {
    let is_cut_short = |point: &Point| measured_seconds - (point.second as f64) < 0.5;
    while points.len() > 1 && points.last().is_some_and(is_cut_short) {
        points.pop();
    }
    Series { interval_seconds: 1.0, points }
}

/// A unique id for a result.
pub fn id(about: &RunDescription) -> String {
    id_of(about.kind, &about.workload, about.started)
}

/// A unique id for a result or report of this kind, with its start time.
pub fn id_of(kind: &str, workload: &str, started: SystemTime) -> String {
    let nanos = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let mark = Rng::new(nanos as u64, u64::from(std::process::id())).next_u32() & 0xffff;
    let workload: String = workload.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let time = facts::compact(started);
    match workload.is_empty() {
        true => format!("{time}-{kind}-{mark:04x}"),
        false => format!("{time}-{kind}-{workload}-{mark:04x}"),
    }
}

/// This process's command line, without passwords.
pub fn command() -> Vec<String> {
    secrets::without_passwords(std::env::args())
}

/// The latencies of every kind of operation that occurred.
pub fn operations(names: &[&str], driven: &Driven, seconds: f64) -> Vec<OperationResult> {
    let seen = |kind: &KindLatencies| kind.service.is_some() || kind.failed.is_some();
    let kinds = names.iter().zip(&driven.totals.kinds).filter(|(_, kind)| seen(kind));
    kinds
        .map(|(name, kind)| OperationResult {
            name: (*name).to_owned(),
            ok: kind.ok_count(),
            failed: kind.failed_count(),
            per_second: kind.ok_count() as f64 / seconds,
            service: kind.service.as_ref().map(histogram::latency).unwrap_or_default(),
            intended: kind.intended.as_ref().map(histogram::latency),
            failed_service: kind.failed.as_ref().map(histogram::latency),
            server_cpu_us_per_operation: None,
        })
        .collect()
}

/// The resources that the client used.
pub fn client(driven: &Driven, seconds: f64) -> ClientUse {
    let threads = &driven.totals.thread_cpu_seconds;
    let busiest = threads.iter().copied().fold(0.0, f64::max);
    ClientUse {
        cpu_seconds: driven.client_cpu.seconds,
        user_seconds: driven.client_cpu.user_seconds,
        system_seconds: driven.client_cpu.system_seconds,
        threads: threads.len(),
        busiest_thread_share: busiest / seconds,
        waiting_share: driven.client_cpu.waited_seconds.map(|s| s / seconds / threads.len().max(1) as f64),
        peak_memory_bytes: own_process::peak_memory_bytes(),
        sent_bytes: driven.totals.sent_bytes,
        received_bytes: driven.totals.received_bytes,
    }
}

/// How operations were sent, for the result.
pub fn pacing(plan: &Plan, driven: &Driven) -> Pacing {
    let closed = Pacing {
        kind: "closed".to_owned(),
        connections: plan.connections,
        pipeline: plan.pipeline,
        client_threads: driven.totals.thread_cpu_seconds.len(),
        ..Pacing::default()
    };
    let LoopKind::Open { rate, spacing, .. } = plan.kind else { return closed };
    let arrivals = match spacing {
        Spacing::Constant => "constant",
        Spacing::Poisson => "poisson",
    };
    Pacing {
        kind: "open".to_owned(),
        target_per_second: Some(rate),
        arrivals: Some(arrivals.to_owned()),
        arrivals_total: Some(driven.totals.arrived),
        arrivals_skipped: Some(driven.totals.skipped),
        waiting_max: Some(driven.totals.waiting_max),
        ..closed
    }
}

fn throughput(driven: &Driven, extras: &Extras, seconds: f64) -> Throughput {
    let operations = driven.totals.ok;
    let unit = |(name, total): &(&'static str, u64)| UnitRate {
        name: (*name).to_owned(),
        total: *total,
        per_second: *total as f64 / seconds,
    };
    Throughput {
        operations,
        operations_per_second: operations as f64 / seconds,
        units: extras.units.iter().map(unit).collect(),
    }
}

fn errors(names: &[&str], driven: &Driven) -> Vec<ErrorTally> {
    let tally = |((operation, kind), seen): (&(u8, client::answer::FailureKind), _)| {
        let seen: &crate::measure::interval::FailureCount = seen;
        ErrorTally {
            operation: names.get(usize::from(*operation)).copied().unwrap_or("?").to_owned(),
            kind: kind.name().to_owned(),
            count: seen.count,
            first_message: seen.first_message.clone(),
        }
    };
    let mut errors: Vec<ErrorTally> = driven.totals.failures.iter().map(tally).collect();
    errors.sort_by_key(|error| std::cmp::Reverse(error.count));
    errors
}

fn verification(driven: &Driven, integrity: Option<Integrity>) -> Verification {
    let wrong = client::answer::FailureKind::WrongAnswer;
    let failures = driven.totals.failures.iter().filter(|((_, kind), _)| *kind == wrong);
    Verification {
        checked_by_type: driven.totals.checked_by_type,
        parsed: driven.totals.parsed,
        wrong: failures.clone().map(|(_, seen)| seen.count).sum(),
        first_wrong: failures.clone().map(|(_, seen)| seen.first_message.clone()).next(),
        integrity,
    }
}

fn log(samples: &[(Sample, Sample)], acknowledged_writes: u64) -> Option<LogUse> {
    let sum = |value: fn(&(Sample, Sample)) -> Option<u64>| -> Option<u64> {
        let known: Vec<u64> = samples.iter().filter_map(value).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    };
    let (fsyncs_before, fsyncs_after) =
        (sum(|(before, _)| before.log_fsyncs)?, sum(|(_, after)| after.log_fsyncs)?);
    let fsyncs = fsyncs_after.saturating_sub(fsyncs_before);
    Some(LogUse {
        appends_before: sum(|(before, _)| before.log_appends)?,
        appends_after: sum(|(_, after)| after.log_appends)?,
        fsyncs_before,
        fsyncs_after,
        acknowledged_writes,
        acknowledged_writes_per_fsync: (fsyncs > 0).then(|| acknowledged_writes as f64 / fsyncs as f64),
    })
}

fn cost(throughput: &Throughput, client: &ClientUse, servers: &[ServerUse]) -> Cost {
    let operations = throughput.operations as f64;
    let documents = throughput.units.iter().find(|unit| unit.name == "documents");
    let total = |value: fn(&ServerUse) -> Option<f64>| -> Option<f64> {
        servers.iter().map(value).sum::<Option<f64>>().filter(|_| !servers.is_empty())
    };
    let cpu = total(|server| server.cpu_seconds).filter(|seconds| *seconds > 0.0);
    let written = total(|server| server.written_bytes.map(|bytes| bytes as f64));
    let per_operation = |amount: f64| (operations > 0.0).then(|| amount / operations);
    Cost {
        server_cpu_us_per_operation: cpu.and_then(|seconds| per_operation(seconds * 1e6)),
        client_cpu_us_per_operation: per_operation(client.cpu_seconds * 1e6),
        operations_per_server_cpu_second: cpu.map(|seconds| operations / seconds),
        documents_per_server_cpu_second: documents
            .zip(cpu)
            .map(|(documents, seconds)| documents.total as f64 / seconds),
        written_bytes_per_operation: written.and_then(per_operation),
    }
}

#[cfg(test)]
mod tests {
    use super::{Point, series};

    #[test]
    fn a_last_second_cut_short_is_left_out() {
        let points = |seconds: std::ops::Range<i64>| -> Vec<Point> {
            seconds.map(|second| Point { second, ..Point::default() }).collect()
        };
        assert_eq!(series(points(-2..11), 10.003).points.len(), 12);
        assert_eq!(series(points(0..11), 10.6).points.len(), 11);
        assert_eq!(series(points(0..1), 0.2).points.len(), 1);
    }
}
