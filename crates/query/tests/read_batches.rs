//! Read batches: reads of rows on another node that start before the same flush share a request.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::{OnResponse, RpcClient, RpcError, RpcHandler, ServerId};
use parking_lot::Mutex;
use rekindle_query::{PointAnswer, QueryServer, RemotePoint};
use serde_json::Map;
use support::{SENDER, TestNode, block_on, query};

/// The second byte of a request for rows.
const GET: u8 = 1;

/// The response to a request for rows, instead of the real one.
type Intercept = fn(&Bytes) -> Option<Result<Bytes, RpcError>>;

/// Counts the requests for rows.
struct Counting {
    server: QueryServer,
    asked: Arc<Mutex<usize>>,
    intercept: Intercept,
}

impl RpcClient for Counting {
    fn call(&self, server: ServerId, request: Bytes, _timeout: Duration, on_response: OnResponse) {
        if request[1] == GET {
            *self.asked.lock() += 1;
            if let Some(answer) = (self.intercept)(&request) {
                return on_response(answer);
            }
        }
        let refused = move |why| RpcError::Refused { server, why };
        self.server.handle(SENDER, request, Box::new(move |answer| on_response(answer.map_err(refused))));
    }

    fn is_connected(&self, _server: ServerId) -> bool {
        true
    }
}

/// A node with the even ones of 80 rows on another node, and the counter of its requests.
fn test_node(intercept: Intercept) -> (TestNode, Arc<Mutex<usize>>) {
    let asked = Arc::<Mutex<usize>>::default();
    let counted = asked.clone();
    let test_node = TestNode::with_client(|server| Arc::new(Counting { server, asked: counted, intercept }));
    let rows =
        "r.table(\"t\").insert(r.range(40).map(row => ({id: row.mul(2), n: row})).coerce_to(\"array\"))";
    for term in ["r.table_create(\"t\")", rows] {
        test_node.run("admin", syntax::to_wire(term).unwrap(), Map::new()).unwrap();
    }
    *asked.lock() = 0;
    (test_node, asked)
}

fn begin(test_node: &TestNode, key: usize) -> RemotePoint {
    let term = syntax::to_wire(&format!("r.table(\"t\").get({key})")).unwrap();
    match test_node.session("admin").point(&Arc::new(query(term, Map::new()).unwrap())) {
        Some(PointAnswer::RemoteRead(read)) => read,
        _ => panic!("every row is elsewhere"),
    }
}

/// Reads rows 0 to `count`, all before one flush, and checks each; returns the number of requests.
fn read(test_node: &TestNode, asked: &Mutex<usize>, count: usize) -> usize {
    read_these(test_node, asked, 0..count)
}

fn read_these(test_node: &TestNode, asked: &Mutex<usize>, keys: impl Iterator<Item = usize>) -> usize {
    let reads: Vec<(usize, RemotePoint)> = keys.map(|key| (key, begin(test_node, key))).collect();
    test_node.service.flush();
    for (key, read) in reads {
        let wanted = match key % 2 {
            0 => format!("{{\"id\":{key},\"n\":{}}}", key / 2),
            _ => "null".to_owned(),
        };
        assert_eq!(block_on(read).unwrap().to_json_string(), wanted);
    }
    std::mem::take(&mut *asked.lock())
}

#[test]
fn sixteen_reads_share_a_request() {
    let (test_node, asked) = test_node(|_| None);
    assert_eq!([1, 16, 17, 40].map(|count| read(&test_node, &asked, count)), [1, 1, 2, 3]);
}

#[test]
fn a_row_that_many_read_at_once_is_requested_once() {
    let (test_node, asked) = test_node(|_| None);
    let of = |rows: usize| (0..1000).map(move |read| (read * 7) % rows);
    assert_eq!([1, 2, 15, 17].map(|rows| read_these(&test_node, &asked, of(rows))), [1, 1, 1, 63]);
}

#[test]
fn reads_of_other_tables_and_modes_have_separate_batches() {
    let (test_node, asked) = test_node(|_| None);
    test_node.run("admin", syntax::to_wire("r.table_create(\"u\")").unwrap(), Map::new()).unwrap();
    let terms =
        ["r.table(\"t\").get(2)", "r.table(\"u\").get(2)", "r.table(\"t\", read_mode: \"outdated\").get(2)"];
    let reads = terms.map(|term| {
        let query = query(syntax::to_wire(term).unwrap(), Map::new()).unwrap();
        match test_node.session("admin").point(&Arc::new(query)) {
            Some(PointAnswer::RemoteRead(read)) => read,
            _ => panic!("every row is elsewhere"),
        }
    });
    test_node.service.flush();
    let rows = reads.map(|read| block_on(read).unwrap().to_json_string());
    assert_eq!(rows, ["{\"id\":2,\"n\":1}", "null", "{\"id\":2,\"n\":1}"]);
    assert_eq!(*asked.lock(), 3);
}

/// Whether a request is for more than one row, as these keys are.
fn is_for_many(request: &Bytes) -> bool {
    request.len() > 60
}

#[test]
fn reads_of_a_failed_batch_are_retried_alone() {
    const MOVED: &[u8] = &[2, 0];
    const NO_ROWS: &[u8] = &[0, 0];
    const DAMAGED: &[u8] = &[77];
    let intercepts: [Intercept; 3] = [
        |request| is_for_many(request).then_some(Ok(Bytes::from_static(MOVED))),
        |request| is_for_many(request).then_some(Ok(Bytes::from_static(NO_ROWS))),
        |request| is_for_many(request).then_some(Ok(Bytes::from_static(DAMAGED))),
    ];
    for intercept in intercepts {
        let (test_node, asked) = test_node(intercept);
        assert_eq!(read(&test_node, &asked, 1), 1);
        assert_eq!(read(&test_node, &asked, 10), 1 + 10);
    }
}

#[test]
fn a_lost_batch_is_retried_for_each_read() {
    let (test_node, asked) =
        test_node(|request| is_for_many(request).then_some(Err(RpcError::NoResponse(support::RECEIVER))));
    assert_eq!(read(&test_node, &asked, 10), 1 + 10);
}
