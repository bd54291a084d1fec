//! YCSB's own summary, for scripts that parse it.

use std::fmt::Write;

use crate::result::{Latency, OperationResult, RunResult};

/// The final summary in YCSB's format: `[METRIC], measurement, value`.
pub fn summary(result: &RunResult) -> String {
    let mut out = String::new();
    let runtime_ms = result.time.measured_seconds * 1000.0;
    line(&mut out, "OVERALL", "RunTime(ms)", &format!("{runtime_ms:.0}"));
    let rate = result.throughput.operations_per_second;
    line(&mut out, "OVERALL", "Throughput(ops/sec)", &rate.to_string());
    for operation in &result.operations {
        section(&mut out, &operation.name, &operation.service, Some(operation.ok));
        failures(&mut out, result, operation);
        if let Some(intended) = &operation.intended {
            section(&mut out, &format!("Intended-{}", operation.name), intended, None);
        }
        if let Some(failed) = &operation.failed_service {
            section(&mut out, &format!("{}-FAILED", operation.name), failed, None);
        }
    }
    if let Some(integrity) = &result.verification.integrity {
        let all = integrity.ok + integrity.unexpected_state + integrity.error;
        line(&mut out, "VERIFY", "Operations", &all.to_string());
        for (status, count) in [
            ("OK", integrity.ok),
            ("UNEXPECTED_STATE", integrity.unexpected_state),
            ("ERROR", integrity.error),
        ] {
            line(&mut out, "VERIFY", &format!("Return={status}"), &count.to_string());
        }
    }
    out
}

fn section(out: &mut String, name: &str, latency: &Latency, ok: Option<u64>) {
    line(out, name, "Operations", &latency.count.to_string());
    let whole = |value: Option<f64>| format!("{:.0}", value.unwrap_or(0.0));
    if latency.count > 0 {
        let mean = latency.mean_us.unwrap_or(0.0);
        line(out, name, "AverageLatency(us)", &mean.to_string());
        line(out, name, "MinLatency(us)", &whole(latency.min_us));
        line(out, name, "MaxLatency(us)", &whole(latency.max_us));
        line(out, name, "50thPercentileLatency(us)", &whole(latency.p50_us));
        line(out, name, "90thPercentileLatency(us)", &whole(latency.p90_us));
        line(out, name, "95thPercentileLatency(us)", &whole(latency.p95_us));
        line(out, name, "99thPercentileLatency(us)", &whole(latency.p99_us));
        line(out, name, "99.9PercentileLatency(us)", &whole(latency.p999_us));
        line(out, name, "99.99PercentileLatency(us)", &whole(latency.p9999_us));
    }
    if let Some(ok) = ok {
        line(out, name, "Return=OK", &ok.to_string());
    }
}

fn failures(out: &mut String, result: &RunResult, operation: &OperationResult) {
    let mine = result.errors.iter().filter(|error| error.operation == operation.name);
    let mut by_status: Vec<(&str, u64)> = Vec::new();
    for error in mine {
        let status = status_of(&error.kind);
        match by_status.iter_mut().find(|(name, _)| *name == status) {
            Some((_, count)) => *count += error.count,
            None => by_status.push((status, error.count)),
        }
    }
    for (status, count) in by_status {
        line(out, &operation.name, &format!("Return={status}"), &count.to_string());
    }
}

fn status_of(kind: &str) -> &'static str {
    match kind {
        "NOT_FOUND" => "NOT_FOUND",
        "WRONG_ANSWER" => "UNEXPECTED_STATE",
        "CLIENT_ERROR" | "COMPILE_ERROR" | "QUERY_LOGIC" => "BAD_REQUEST",
        "PERMISSION_ERROR" => "FORBIDDEN",
        "OP_FAILED" | "CONNECTION_LOST" => "SERVICE_UNAVAILABLE",
        _ => "ERROR",
    }
}

fn line(out: &mut String, metric: &str, measurement: &str, value: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "[{metric}], {measurement}, {value}");
}
