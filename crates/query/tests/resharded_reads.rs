//! Reads by an index of a table that is resharded, or whose servers disconnect, during the read: every row comes once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cluster::{OnResponse, RpcClient, RpcError, RpcHandler, ServerId};
use datum::{Datum, KeyBound, KeyRange};
use parking_lot::Mutex;
use rekindle_query::{Answer, Client, QueryServer, Session};
use reql::Cancel;
use serde_json::Map;
use support::{Outcome, SENDER, TestNode, query};

/// The second bytes of requests that count, gather, open a cursor and read its next batch.
const COUNT: u8 = 3;
const GATHER: u8 = 4;
const OPEN: u8 = 5;
const NEXT: u8 = 6;

/// Called before a request of a kind is passed to the other server; returns whether to lose it.
type Intercept = Box<dyn FnMut(u8) -> bool + Send>;

#[derive(Clone, Default)]
struct Intercepts(Arc<Mutex<Option<Intercept>>>);

impl Intercepts {
    fn play(&self, intercept: impl FnMut(u8) -> bool + Send + 'static) {
        *self.0.lock() = Some(Box::new(intercept));
    }

    /// Whether the request is lost. Requests that the intercept itself causes pass.
    fn is_lost(&self, kind: u8) -> bool {
        let Some(mut intercept) = self.0.lock().take() else { return false };
        let is_lost = intercept(kind);
        *self.0.lock() = Some(intercept);
        is_lost
    }
}

struct Tricky {
    server: QueryServer,
    intercepts: Intercepts,
}

impl RpcClient for Tricky {
    fn call(&self, server: ServerId, request: Bytes, _timeout: Duration, on_response: OnResponse) {
        if self.intercepts.is_lost(request[1]) {
            return on_response(Err(RpcError::NoResponse(server)));
        }
        let refused = move |why| RpcError::Refused { server, why };
        self.server.handle(SENDER, request, Box::new(move |answer| on_response(answer.map_err(refused))));
    }

    fn is_connected(&self, _server: ServerId) -> bool {
        true
    }
}

fn run(test_node: &TestNode, term: &str) -> String {
    match test_node.run("admin", syntax::to_wire(term).unwrap(), Map::new()).unwrap() {
        Outcome::Atom(datum) => datum.to_json_string(),
        Outcome::Stream(batches) => Datum::from(batches.concat()).to_json_string(),
    }
}

/// Reshards the table into `shards` shards, as another client of the same node.
fn divider(test_node: &TestNode, shards: usize) -> impl Fn() + Send + 'static {
    let service = test_node.service.clone();
    move || {
        let address = "127.0.0.1:5000".parse().unwrap();
        let session = Session::new(service.clone(), Client { user: "admin".into(), address });
        let term = format!("r.table(\"t\").reconfigure(shards: {shards}, replicas: 1)[\"reconfigured\"]");
        let query = query(syntax::to_wire(&term).unwrap(), Map::new()).unwrap();
        match session.run(&query, Arc::new(Cancel::new())).unwrap().answer {
            Answer::Atom(answer) => assert_eq!(answer.to_json_string(), "1"),
            Answer::Stream(_) => panic!("no stream"),
        }
    }
}

/// 400 rows of a kilobyte in `shards` shards, with some indexes: `g` with five values, `m` with two or three per row,
/// `long` with truncated keys, and a geospatial one.
fn filled(test_node: &TestNode, shards: usize) {
    let pad = "0123456789abcdef".repeat(64);
    for term in [
        "r.table_create(\"t\")".to_owned(),
        format!(
            "r.table(\"t\").insert(r.range(400).map(i => ({{id: i, g: i.mod(5), pad: \"{pad}\",
               at: r.point(i.div(10), 10),
               m: [i.mod(3), i.mod(7).add(10), i.mod(2)],
               long: [r.expr(\"{pad}\").add(i.mod(4).coerce_to(\"string\")),
                 r.expr(\"{pad}\").add(i.mod(3).coerce_to(\"string\")), r.expr(\"{pad}\").add(\"0\")]}})))"
        ),
        format!("r.table(\"t\").reconfigure(shards: {shards}, replicas: 1)"),
        "r.table(\"t\").index_create(\"g\")".to_owned(),
        "r.table(\"t\").index_create(\"m\", multi: true)".to_owned(),
        "r.table(\"t\").index_create(\"long\", multi: true)".to_owned(),
        "r.table(\"t\").index_create(\"at\", geo: true)".to_owned(),
        "r.table(\"t\").index_wait()".to_owned(),
    ] {
        run(test_node, &term);
    }
}

/// Queries that read all or many of the rows by an index.
const READS: [&str; 13] = [
    "r.table(\"t\").get_all(3, index: \"g\").count()",
    "r.table(\"t\").between(0, 3, index: \"g\").sum(\"id\")",
    "r.table(\"t\").get_all(3, 1, 3, index: \"g\")[\"id\"].coerce_to(\"array\").order_by(x => x)",
    "r.table(\"t\").order_by(index: \"g\")[\"id\"].coerce_to(\"array\")",
    "r.table(\"t\").order_by(index: r.desc(\"g\"))[\"id\"].coerce_to(\"array\")",
    "r.table(\"t\").order_by(index: \"m\")[\"id\"].coerce_to(\"array\")",
    "r.table(\"t\").order_by(index: r.desc(\"long\"))[\"id\"].coerce_to(\"array\")",
    "r.table(\"t\").between(r.minval, r.maxval, index: \"long\").count()",
    "r.table(\"t\").distinct(index: \"g\")",
    "r.table(\"t\").group(index: \"g\").count()",
    "r.table(\"t\").max(index: \"m\")[\"id\"]",
    "r.table(\"t\").get_intersecting(r.circle([20, 10], 1000000), index: \"at\").count()",
    "r.table(\"t\").get_all(2, index: \"g\").update(x => ({seen: x[\"seen\"].default(0).add(1)}))[\"replaced\"]",
];

#[test]
fn a_local_shard_that_was_merged_is_read_once() {
    for read in READS {
        let (intercepts, is_far) = (Intercepts::default(), Arc::new(AtomicBool::new(false)));
        let (asked, still_far) = (intercepts.clone(), is_far.clone());
        let second =
            move |range: &KeyRange| range.start != KeyBound::Unbounded && still_far.load(Ordering::Relaxed);
        let test_node =
            TestNode::with_client_for(second, |server| Arc::new(Tricky { server, intercepts: asked }));
        filled(&test_node, 2);
        let right = run(&test_node, read);
        is_far.store(true, Ordering::Relaxed);
        let merge = divider(&test_node, 1);
        let lost = Arc::new(AtomicBool::new(false));
        let is_lost = lost.clone();
        intercepts.play(move |kind| {
            let first = matches!(kind, COUNT | GATHER | OPEN) && !is_lost.swap(true, Ordering::Relaxed);
            if first {
                is_far.store(false, Ordering::Relaxed);
                merge();
            }
            first
        });
        assert_eq!(run(&test_node, read), right, "{read}");
        assert!(lost.load(Ordering::Relaxed), "{read}: nothing was asked");
    }
}

#[test]
fn a_remote_shard_that_was_merged_is_read_once() {
    for read in READS {
        let intercepts = Intercepts::default();
        let asked = intercepts.clone();
        let second = |range: &KeyRange| range.start != KeyBound::Unbounded;
        let test_node =
            TestNode::with_client_for(second, |server| Arc::new(Tricky { server, intercepts: asked }));
        filled(&test_node, 2);
        let right = run(&test_node, read);
        let merge = divider(&test_node, 1);
        let merged = Arc::new(AtomicBool::new(false));
        let is_merged = merged.clone();
        intercepts.play(move |kind| {
            if matches!(kind, COUNT | GATHER | OPEN) && !is_merged.swap(true, Ordering::Relaxed) {
                merge();
            }
            false
        });
        assert_eq!(run(&test_node, read), right, "{read}");
        assert!(merged.load(Ordering::Relaxed), "{read}: nothing was asked");
    }
}

/// A node whose shards are all remote.
fn far(shards: usize) -> (TestNode, Intercepts) {
    let intercepts = Intercepts::default();
    let asked = intercepts.clone();
    let test_node = TestNode::with_client(|server| Arc::new(Tricky { server, intercepts: asked }));
    filled(&test_node, shards);
    (test_node, intercepts)
}

/// Loses the `n`th read of a cursor.
fn lose(intercepts: &Intercepts, n: usize, before: impl Fn() + Send + 'static) -> Arc<AtomicBool> {
    let (mut asked, lost) = (0, Arc::new(AtomicBool::new(false)));
    let is_lost = lost.clone();
    intercepts.play(move |kind| {
        asked += usize::from(kind == NEXT);
        let now = kind == NEXT && asked == n;
        if now {
            before();
            is_lost.store(true, Ordering::Relaxed);
        }
        now
    });
    lost
}

/// Streams by an index, and whether they are ordered.
const STREAMS: [(&str, bool); 7] = [
    ("r.table(\"t\").get_all(3, 1, 3, 0, index: \"g\").pluck(\"id\", \"pad\")", false),
    ("r.table(\"t\").between(0, 20, index: \"m\").pluck(\"id\", \"pad\")", false),
    ("r.table(\"t\").between(r.minval, r.maxval, index: \"long\").pluck(\"id\", \"pad\")", false),
    ("r.table(\"t\").order_by(index: \"g\").pluck(\"id\", \"pad\")", true),
    ("r.table(\"t\").order_by(index: r.desc(\"m\")).pluck(\"id\", \"pad\")", true),
    ("r.table(\"t\").order_by(index: \"long\").pluck(\"id\", \"pad\")", true),
    ("r.table(\"t\").order_by(index: r.desc(\"long\")).pluck(\"id\", \"pad\")", true),
];

#[test]
fn a_stream_by_an_index_continues_after_its_server_is_lost() {
    let (test_node, intercepts) = far(3);
    for (stream, _) in STREAMS {
        let right = run(&test_node, stream);
        for n in [1, 2, 3, 5] {
            let lost = lose(&intercepts, n, || ());
            let answer = run(&test_node, stream);
            assert!(answer == right, "{stream}, {n}: {}", &answer[..200.min(answer.len())]);
            assert!(lost.load(Ordering::Relaxed), "{stream}, {n}: nothing was lost");
        }
    }
}

#[test]
fn a_stream_by_an_index_continues_in_other_shards() {
    let sorted = |answer: &str| {
        let mut ids: Vec<_> = answer.split("\"id\":").skip(1).map(|row| row.split(',').next()).collect();
        ids.sort_unstable();
        ids.into_iter().flatten().map(str::to_owned).collect::<Vec<_>>()
    };
    for (stream, is_ordered) in STREAMS {
        for (from, to) in [(3, 1), (1, 4), (2, 5)] {
            let (test_node, intercepts) = far(from);
            let right = run(&test_node, stream);
            let lost = lose(&intercepts, 2, divider(&test_node, to));
            let answer = run(&test_node, stream);
            if is_ordered {
                assert!(answer == right, "{stream}, {from} to {to}");
            }
            assert_eq!(sorted(&answer), sorted(&right), "{stream}, {from} to {to}");
            assert!(lost.load(Ordering::Relaxed), "{stream}: nothing was lost");
        }
    }
}

#[test]
fn written_rows_are_not_found_again_by_their_new_values() {
    let (test_node, intercepts) = far(3);
    let write = "r.table(\"t\").between(0, 100, index: \"g\").update(x => ({g: x[\"g\"].add(10)}))";
    let lost = lose(&intercepts, 1, || ());
    let Err(error) = test_node.run("admin", syntax::to_wire(write).unwrap(), Map::new()) else {
        panic!("rows that were written may have come again");
    };
    assert!(error.to_string().contains("lost contact with primary replica"), "{error}");
    assert!(lost.load(Ordering::Relaxed), "nothing was lost");
    assert_eq!(run(&test_node, "r.table(\"t\").filter(x => x[\"g\"].gt(14)).count()"), "0");
}
