//! Measures a server with a known stall: an open loop must show it in its percentiles as computed, and a closed loop
//! must hide it, which is why its tables are labelled as such.

use std::time::Duration;

use rekindle_bench::baseline::null_server::{NullServer, Stall};
use rekindle_bench::drive::arrivals::Spacing;
use rekindle_bench::drive::session::{Driven, LoopKind, Plan, drive};
use rekindle_bench::drive::workload::{CheckDepth, OperationPart, Verdict, Workload};
use rekindle_bench::measure::histogram;

const RATE: f64 = 2_000.0;
const LENGTH: Duration = Duration::from_millis(1_500);
const STALL: Stall = Stall { after: Duration::from_millis(500), length: Duration::from_millis(500) };

struct Ask;

impl Workload for Ask {
    fn next(&mut self, _place: usize, query: &mut Vec<u8>) -> Option<OperationPart> {
        query.extend_from_slice(b"[1,1,{}]");
        Some(OperationPart::default())
    }

    fn judge(&mut self, _: &OperationPart, _: &[u8], _: CheckDepth, _: &mut Vec<u8>) -> Verdict {
        Verdict::Done
    }
}

fn run(kind: LoopKind, stall: Option<Stall>) -> Driven {
    let body = br#"{"t":1,"r":[1],"n":[]}"#.to_vec();
    let server = NullServer::start(body, stall).expect("a server");
    let plan = Plan {
        addresses: vec![server.address.to_string()],
        login: None,
        connections: 4,
        pipeline: 1,
        threads: 1,
        kind,
        warmup: Duration::ZERO,
        seconds: Some(LENGTH),
        operations: None,
        drain: Duration::from_secs(20),
        seed: 1,
    };
    let make = |_, _| -> Box<dyn Workload> { Box::new(Ask) };
    let driven = drive(&plan, &["ASK"], make, &[], &mut |_| {}).expect("a run");
    server.stop().expect("stopped");
    driven
}

fn open(waiting_max: usize) -> LoopKind {
    LoopKind::Open { rate: RATE, spacing: Spacing::Constant, waiting_max }
}

#[test]
fn an_open_loop_shows_a_stall_as_arithmetic_says() {
    let driven = run(open(100_000), Some(STALL));
    let expected = RATE * LENGTH.as_secs_f64();
    assert!((driven.totals.ok as f64 - expected).abs() <= 2.0, "{}", driven.totals.ok);
    let kind = &driven.totals.kinds[0];
    let intended = kind.intended.as_ref().expect("intended latencies");
    // A third of the arrivals fall into the stall and wait for its end, the first of them longest: the share of waits
    // above x is (stall - x) / length, so quantile q is stall - (1 - q) * length.
    for quantile in [0.75, 0.9, 0.95, 0.99] {
        let exact = STALL.length.as_secs_f64() - (1.0 - quantile) * LENGTH.as_secs_f64();
        let found = histogram::quantile_us(intended, quantile) / 1e6;
        assert!(found > exact - 0.03 && found < exact + 0.15, "p{quantile}: {found} for {exact}");
    }
    // By service time, the same run looks harmless: only four operations met the stall.
    let service = kind.service.as_ref().expect("service latencies");
    assert!(histogram::quantile_us(service, 0.99) / 1e6 < 0.2);
}

#[test]
fn a_closed_loop_hides_a_stall() {
    let driven = run(LoopKind::Closed, Some(STALL));
    let kind = &driven.totals.kinds[0];
    assert!(kind.intended.is_none());
    let service = kind.service.as_ref().expect("service latencies");
    assert!(histogram::quantile_us(service, 0.99) / 1e6 < 0.2);
    assert!(histogram::max_us(service) / 1e6 > 0.4, "the longest is never cut");
}

#[test]
fn a_full_waiting_line_is_counted() {
    let driven = run(open(100), Some(STALL));
    let totals = &driven.totals;
    assert!(totals.skipped > 700, "{}", totals.skipped);
    assert_eq!(totals.waiting_max, 100);
    assert_eq!(totals.arrived, totals.ok + totals.skipped);
}

#[test]
fn operations_stop_at_their_number() {
    let body = br#"{"t":1,"r":[1],"n":[]}"#.to_vec();
    let server = NullServer::start(body, None).expect("a server");
    let plan = Plan {
        addresses: vec![server.address.to_string()],
        login: None,
        connections: 7,
        pipeline: 3,
        threads: 2,
        kind: LoopKind::Closed,
        warmup: Duration::from_millis(50),
        seconds: None,
        operations: Some(1_000),
        drain: Duration::from_secs(20),
        seed: 1,
    };
    let make = |_, _| -> Box<dyn Workload> { Box::new(Ask) };
    let driven = drive(&plan, &["ASK"], make, &[], &mut |_| {}).expect("a run");
    let totals = &driven.totals;
    // Operations in flight at the end of the warm-up are answered in the measured part and count there.
    assert!((1_000..=1_000 + 21).contains(&totals.ok), "{}", totals.ok);
    assert_eq!(totals.failed, 0);
}

#[test]
fn a_server_that_goes_away_is_an_error_and_not_a_hang() {
    let body = br#"{"t":1,"r":[1],"n":[]}"#.to_vec();
    let server = NullServer::start(body, None).expect("a server");
    let plan = Plan {
        addresses: vec![server.address.to_string()],
        login: None,
        connections: 2,
        pipeline: 1,
        threads: 1,
        kind: LoopKind::Closed,
        warmup: Duration::ZERO,
        seconds: Some(Duration::from_secs(60)),
        operations: None,
        drain: Duration::from_secs(20),
        seed: 1,
    };
    let mut server = Some(server);
    let make = |_, _| -> Box<dyn Workload> { Box::new(Ask) };
    let mut stop = |_: &rekindle_bench::result::Point| {
        server.take().into_iter().for_each(|s| assert!(s.stop().is_ok()));
    };
    let driven = drive(&plan, &["ASK"], make, &[], &mut stop).expect("a run");
    assert!(driven.totals.ok > 0);
    let lost = driven.totals.failures.iter().next().expect("a failure");
    assert_eq!(lost.0.1.name(), "CONNECTION_LOST");
}
