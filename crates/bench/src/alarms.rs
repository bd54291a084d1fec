//! Alarms: reasons not to take a result at face value.

use crate::result::{Alarm, RunResult};

/// Above this use of a client thread, the client may be the bottleneck.
const BUSY_THREAD_SHARE: f64 = 0.9;
/// Above this use, the server itself is the bottleneck.
const BUSY_SERVER_SHARE: f64 = 0.85;
/// Above this use of the machine, client and server compete for its cores.
const BUSY_MACHINE_SHARE: f64 = 0.95;
/// Above this share of the echo rate, the client's ceiling affects the result.
const ECHO_SHARE: f64 = 0.8;
/// Above this share of failures, the result is suspect.
const FAILED_SHARE: f64 = 0.01;

/// A run shorter than this share of its duration was cut short.
const WHOLE_SHARE: f64 = 0.9;
/// The kind of alarm for a run that was cut short, which makes its result worthless.
pub const CUT_SHORT: &str = "cut-short";
/// The kind of alarm for a kind of operation that always failed, which also makes the result worthless.
pub const ALL_FAILED: &str = "all-failed";
/// The kind of alarm for a run that measured too little.
pub const TOO_SHORT: &str = "too-short";
/// The kind of alarm for other programs that used the machine: [`crate::conditions`] raises it.
pub const DISTURBED: &str = "disturbed";
/// What to do about a server that is not watched, with the flags of a single run.
pub const HOW_TO_WATCH: &str = "give --http or --server-pid";

/// Computes all alarms of a result.
pub fn raise(result: &RunResult) -> Vec<Alarm> {
    [
        client_limited(result),
        shared_cores(result),
        echo_ceiling(result),
        skipped_arrivals(result),
        errors(result),
        all_failed(result),
        cut_short(result),
        wrong_answers(result),
        check_failed(result),
        server_not_watched(result),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Recomputes the alarms of a result that has changed. The alarm about other programs stays, because it cannot be
/// derived from the result.
pub fn renew(result: &mut RunResult) {
    let around: Vec<Alarm> = result.alarms.drain(..).filter(|alarm| alarm.kind == DISTURBED).collect();
    result.alarms = raise(result);
    result.alarms.extend(around);
}

fn client_limited(result: &RunResult) -> Option<Alarm> {
    let client = result.client.busiest_thread_share;
    let server = result.servers.iter().filter_map(|s| s.cpu_share).reduce(f64::max);
    if client < BUSY_THREAD_SHARE || server.is_some_and(|share| share >= BUSY_SERVER_SHARE) {
        return None;
    }
    let server = match server {
        Some(share) => format!("the busiest server used {} of its cores", percent(share)),
        None => "the load of the server is unknown".to_owned(),
    };
    alarm(
        "client-limited",
        format!(
            "the busiest client thread used {} of a core while {server}: the client may be the \
             limit; try more --client-threads or another machine",
            percent(client)
        ),
    )
}

fn shared_cores(result: &RunResult) -> Option<Alarm> {
    if !result.machine.server_is_local || result.machine.cores == 0 {
        return None;
    }
    let server: f64 = result.servers.iter().filter_map(|s| s.cpu_seconds).sum();
    let used = (result.client.cpu_seconds + server) / result.time.measured_seconds;
    let share = used / result.machine.cores as f64;
    if share < BUSY_MACHINE_SHARE || server == 0.0 {
        return None;
    }
    alarm(
        "shared-cores",
        format!(
            "client and server together used {} of this machine's {} cores: read the CPU time per \
             operation, not the throughput",
            percent(share.min(1.0)),
            result.machine.cores
        ),
    )
}

fn echo_ceiling(result: &RunResult) -> Option<Alarm> {
    let ceiling = result.echo.as_ref()?.operations_per_second;
    let share = result.throughput.operations_per_second / ceiling;
    if share < ECHO_SHARE || result.kind == "baseline-echo" {
        return None;
    }
    let text = "the throughput is {} of the maximum that this client reaches against an echo server";
    alarm("echo-ceiling", text.replace("{}", &percent(share)))
}

fn skipped_arrivals(result: &RunResult) -> Option<Alarm> {
    let skipped = result.pacing.arrivals_skipped.filter(|n| *n > 0)?;
    let total = result.pacing.arrivals_total.unwrap_or(0);
    alarm(
        "skipped-arrivals",
        format!(
            "{skipped} of {total} arrivals were never sent (the queue was full, or the run had ended): the \
             target was not reached and the intended latencies are too good"
        ),
    )
}

fn errors(result: &RunResult) -> Option<Alarm> {
    let failed: u64 = result.errors.iter().map(|error| error.count).sum();
    let all = (result.throughput.operations + failed) as f64;
    let first = result.errors.first().filter(|_| failed as f64 > FAILED_SHARE * all)?;
    alarm(
        "errors",
        format!(
            "{failed} operations failed, most often {} of {}: {}",
            first.kind, first.operation, first.first_message
        ),
    )
}

/// Without one of its kinds of operation, a workload is not the one that was asked for.
fn all_failed(result: &RunResult) -> Option<Alarm> {
    let one = result.operations.iter().find(|one| one.ok == 0 && one.failed > 0)?;
    let error = result.errors.iter().find(|error| error.operation == one.name);
    let first = error.map_or("", |error| error.first_message.as_str());
    alarm(ALL_FAILED, format!("every one of {} {} operations failed: {first}", one.failed, one.name))
}

fn cut_short(result: &RunResult) -> Option<Alarm> {
    let wanted: f64 = result.settings.get("seconds")?.as_f64()?;
    let (measured, failed) = (result.time.measured_seconds, !result.errors.is_empty());
    if !failed || measured >= WHOLE_SHARE * wanted {
        return None;
    }
    alarm(
        CUT_SHORT,
        format!("the run ended after {measured:.1} of {wanted} s because every connection was lost"),
    )
}

fn wrong_answers(result: &RunResult) -> Option<Alarm> {
    let wrong = result.verification.wrong;
    let integrity = result.verification.integrity.as_ref().map_or(0, |i| i.unexpected_state);
    if wrong == 0 && integrity == 0 {
        return None;
    }
    let first = result.verification.first_wrong.as_deref().unwrap_or("see errors");
    alarm("wrong-answers", format!("{} answers were wrong: {first}", wrong.max(integrity)))
}

fn check_failed(result: &RunResult) -> Option<Alarm> {
    let check = result.checks.iter().find(|check| !check.ok)?;
    alarm("check-failed", format!("{}: expected {}, found {}", check.name, check.expected, check.found))
}

fn server_not_watched(result: &RunResult) -> Option<Alarm> {
    let blind = result.servers.iter().find(|server| server.cpu_seconds.is_none())?;
    alarm("server-not-watched", format!("the processor time of {} is unknown: {HOW_TO_WATCH}", blind.address))
}

fn alarm(kind: &str, message: String) -> Option<Alarm> {
    Some(Alarm { kind: kind.to_owned(), message })
}

/// Formats a share: `97 %`.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::assemble::{RunDescription, blank};
    use crate::result::{CheckOutcome, ErrorTally, Latency, OperationResult};

    fn nothing() -> RunResult {
        blank(RunDescription {
            kind: "ycsb-run",
            workload: String::new(),
            name: String::new(),
            label: String::new(),
            published: None,
            seed: 1,
            settings: serde_json::Map::new(),
            notes: Vec::new(),
            started: SystemTime::now(),
        })
    }

    #[test]
    fn alarms_about_the_conditions_survive_a_second_evaluation() {
        let mut result = nothing();
        result.alarms = vec![Alarm { kind: "errors".to_owned(), message: String::new() }];
        result.alarms.extend(crate::conditions::disturbed(&[Some(1.0)]));
        result.checks.push(CheckOutcome {
            name: "nodes alive".to_owned(),
            expected: 2.0,
            found: 1.0,
            ok: false,
            source: String::new(),
        });
        renew(&mut result);
        let kinds: Vec<&str> = result.alarms.iter().map(|alarm| alarm.kind.as_str()).collect();
        assert_eq!(kinds, ["check-failed", DISTURBED]);
    }

    #[test]
    fn a_kind_of_operation_that_always_failed_is_reported_with_the_reason() {
        let mut result = nothing();
        let operation = |name: &str, ok, failed| OperationResult {
            name: name.to_owned(),
            ok,
            failed,
            per_second: 0.0,
            service: Latency::default(),
            intended: None,
            failed_service: None,
            server_cpu_us_per_operation: None,
        };
        result.throughput.operations = 950;
        result.operations = vec![operation("SCAN", 950, 1), operation("INSERT", 1, 3)];
        assert_eq!(all_failed(&result).map(|alarm| alarm.message), None);
        result.operations[1].ok = 0;
        let error = |operation: &str, message: &str| ErrorTally {
            operation: operation.to_owned(),
            kind: "OP_FAILED".to_owned(),
            count: 1,
            first_message: message.to_owned(),
        };
        result.errors = vec![error("SCAN", "another"), error("INSERT", "Duplicate primary key")];
        let alarm = all_failed(&result).expect("an alarm");
        assert_eq!(alarm.message, "every one of 3 INSERT operations failed: Duplicate primary key");
    }
}
