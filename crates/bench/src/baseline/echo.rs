//! The client's ceiling: the same connections and message sizes against a server that only echoes.

use std::time::Duration;

use client::answer;
use client::frame::HEADER_BYTES;

use super::null_server::NullServer;
use crate::drive::session::{DriveError, Driven, LoopKind, Plan, drive};
use crate::drive::workload::{CheckDepth, OperationPart, Verdict, Workload};
use crate::result::EchoBaseline;

/// The kinds of operation of an echo run.
pub const NAMES: &[&str] = &["ECHO"];

/// Payload sizes of one exchange, without the frame headers.
#[derive(Clone, Copy, Debug)]
pub struct EchoSizes {
    /// JSON of the query.
    pub query_bytes: usize,
    /// JSON of the response.
    pub answer_bytes: usize,
}

/// The outcome of an echo run.
pub struct EchoRun {
    /// The numbers for a result.
    pub baseline: EchoBaseline,
    /// The full measurements.
    pub driven: Driven,
}

/// Runs `plan` (its connections, threads, pipeline, loop) for `seconds` against a null server.
pub fn measure(plan: &Plan, sizes: EchoSizes, seconds: Duration) -> Result<EchoRun, DriveError> {
    let server = NullServer::start(answer_of(sizes.answer_bytes), None)?;
    let plan = Plan {
        addresses: vec![server.address.to_string()],
        login: None,
        kind: LoopKind::Closed,
        warmup: Duration::from_millis(200),
        seconds: Some(seconds),
        operations: None,
        ..plan.clone()
    };
    let query = query_of(sizes.query_bytes);
    let make = |_, _| -> Box<dyn Workload> { Box::new(Echo { query: query.clone() }) };
    let driven = drive(&plan, NAMES, make, &[], &mut |_| {})?;
    let server_cpu_seconds = server.stop()?;
    let operations = driven.totals.ok.max(1) as f64;
    let all_seconds = driven.measured_seconds + plan.warmup.as_secs_f64();
    let share_measured = driven.measured_seconds / all_seconds;
    let client_cpu_seconds: f64 = driven.totals.thread_cpu_seconds.iter().sum();
    let baseline = EchoBaseline {
        operations_per_second: operations / driven.measured_seconds,
        server_cpu_us_per_operation: server_cpu_seconds * share_measured * 1e6 / operations,
        client_cpu_us_per_operation: client_cpu_seconds * 1e6 / operations,
        request_bytes: query.len() + HEADER_BYTES,
        response_bytes: answer_of(sizes.answer_bytes).len() + HEADER_BYTES,
    };
    Ok(EchoRun { baseline, driven })
}

struct Echo {
    query: Vec<u8>,
}

impl Workload for Echo {
    fn next(&mut self, _place: usize, query: &mut Vec<u8>) -> Option<OperationPart> {
        query.extend_from_slice(&self.query);
        Some(OperationPart::default())
    }

    fn judge(&mut self, _: &OperationPart, body: &[u8], depth: CheckDepth, _: &mut Vec<u8>) -> Verdict {
        let verdict = match depth {
            CheckDepth::Head => answer::type_at_head(body).map(drop),
            CheckDepth::Whole => answer::parse(body).ok().map(drop),
        };
        match verdict {
            Some(()) => Verdict::Done,
            None => {
                let kind = answer::FailureKind::WrongAnswer;
                Verdict::Failed(answer::Failure::new(kind, "the echo differs from the sent bytes"))
            }
        }
    }
}

fn query_of(bytes: usize) -> Vec<u8> {
    padded(r#"[1,""#, r#"",{}]"#, bytes)
}

fn answer_of(bytes: usize) -> Vec<u8> {
    padded(r#"{"t":1,"r":[""#, r#""]}"#, bytes)
}

fn padded(before: &str, after: &str, bytes: usize) -> Vec<u8> {
    let filler = bytes.saturating_sub(before.len() + after.len());
    [before, &"x".repeat(filler), after].concat().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_run_counts_sent_queries() {
        let plan = Plan {
            addresses: Vec::new(),
            login: None,
            connections: 4,
            pipeline: 2,
            threads: 2,
            kind: LoopKind::Closed,
            warmup: Duration::ZERO,
            seconds: None,
            operations: None,
            drain: Duration::from_secs(5),
            seed: 1,
        };
        let sizes = EchoSizes { query_bytes: 60, answer_bytes: 1100 };
        let run = measure(&plan, sizes, Duration::from_millis(300)).expect("a run");
        let kind = &run.driven.totals.kinds[0];
        assert!(run.driven.totals.ok > 0 && run.driven.totals.failed == 0);
        assert_eq!(kind.ok_count(), run.driven.totals.ok);
        assert_eq!((run.baseline.request_bytes, run.baseline.response_bytes), (72, 1112));
        let answers = run.driven.totals.parsed + run.driven.totals.checked_by_type;
        assert!(answers >= run.driven.totals.ok);
        assert!(run.baseline.server_cpu_us_per_operation > 0.0);
    }
}
