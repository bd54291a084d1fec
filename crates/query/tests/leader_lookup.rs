//! Queries about one row whose shard elects a leader.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::{OnResponse, RpcClient, RpcError, RpcHandler, ServerId};
use datum::Datum;
use parking_lot::Mutex;
use rekindle_query::{PointAnswer, QueryServer};
use reql::EvalError;
use serde_json::Map;
use support::{SENDER, TestNode, block_on, query};

/// The response of a node that does not have the shard and knows no leader.
const NOT_HERE: &[u8] = &[2, 0];

/// A query fails if it finds no leader within this time.
const LEADER_LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Responds for some rows, a number of times, that they are not here.
struct Moving {
    server: QueryServer,
    moves: Mutex<BTreeMap<&'static str, usize>>,
}

impl RpcClient for Moving {
    fn call(&self, server: ServerId, request: Bytes, _timeout: Duration, on_response: OnResponse) {
        let is_about = |name: &str| request.windows(name.len()).any(|bytes| bytes == name.as_bytes());
        for (name, left) in self.moves.lock().iter_mut() {
            if is_about(name) && *left > 0 {
                *left -= 1;
                return on_response(Ok(Bytes::from_static(NOT_HERE)));
            }
        }
        let refused = move |why| RpcError::Refused { server, why };
        self.server.handle(SENDER, request, Box::new(move |answer| on_response(answer.map_err(refused))));
    }

    fn is_connected(&self, _server: ServerId) -> bool {
        true
    }
}

/// The leader is gone.
struct Gone;

impl RpcClient for Gone {
    fn call(&self, server: ServerId, _request: Bytes, _timeout: Duration, on_response: OnResponse) {
        on_response(Err(RpcError::NotConnected(server)));
    }

    fn is_connected(&self, _server: ServerId) -> bool {
        false
    }
}

/// A table whose rows in `moves` are not where they are expected, each the given number of times.
fn test_node(moves: &[(&'static str, usize)]) -> TestNode {
    let moves = Mutex::new(moves.iter().copied().collect());
    let test_node = TestNode::with_client(|server| Arc::new(Moving { server, moves }));
    let term = |term: &str| syntax::to_wire(term).unwrap();
    test_node.run("admin", term("r.table_create(\"t\")"), Map::new()).unwrap();
    test_node
}

fn begin(test_node: &TestNode, term: &str) -> Pin<Box<dyn Future<Output = Result<Datum, EvalError>>>> {
    let term = syntax::to_wire(term).unwrap();
    let answer = test_node.session("admin").point(&Arc::new(query(term, Map::new()).unwrap()));
    test_node.service.flush();
    match answer {
        Some(PointAnswer::RemoteRead(read)) => Box::pin(read),
        Some(PointAnswer::Write(write)) => Box::pin(write),
        _ => panic!("this is answered at once, or the long way"),
    }
}

#[test]
fn queries_that_wait_for_a_leader_do_not_delay_others() {
    let test_node = test_node(&[("lost", usize::MAX), ("late", 3)]);
    let began = Instant::now();
    // More than there are threads in all pools.
    let mut lost: Vec<_> = (0..200).map(|_| begin(&test_node, "r.table(\"t\").get(\"lost\")")).collect();
    let mut context = Context::from_waker(Waker::noop());
    assert!(lost.iter_mut().all(|one| one.as_mut().poll(&mut context).is_pending()));
    let written = block_on(begin(&test_node, "r.table(\"t\").insert({id: \"late\"})")).unwrap();
    assert!(written.to_json_string().contains("\"inserted\":1"), "{}", written.to_json_string());
    let read = block_on(begin(&test_node, "r.table(\"t\").get(\"late\")")).unwrap();
    assert_eq!(read.to_json_string(), "{\"id\":\"late\"}");
    let still_wait = lost.iter_mut().all(|one| one.as_mut().poll(&mut context).is_pending());
    assert!(still_wait || began.elapsed() > LEADER_LOOKUP_TIMEOUT, "they wait on");
}

#[test]
fn a_query_without_a_leader_fails_after_the_timeout() {
    let test_node = test_node(&[("lost", usize::MAX)]);
    let queries = ["r.table(\"t\").get(\"lost\")", "r.table(\"t\").get(\"lost\").delete()"];
    let mut answers = queries.map(|query| begin(&test_node, query));
    // Both wait at the same time.
    let mut context = Context::from_waker(Waker::noop());
    assert!(answers.iter_mut().all(|one| one.as_mut().poll(&mut context).is_pending()));
    let errors = answers.map(|answer| block_on(answer).unwrap_err().to_string());
    let sentence =
        |what: &str| format!("Cannot perform {what}: primary replica for shard [\"\", +inf) not available");
    assert_eq!(errors, [sentence("read"), sentence("write")]);
}

#[test]
fn only_the_first_query_looks_long_for_a_leader_that_is_gone() {
    let test_node = TestNode::with_client(|_| Arc::new(Gone));
    let run = |term: &str| match test_node.run("admin", syntax::to_wire(term).unwrap(), Map::new()) {
        Ok(_) => panic!("{term} was answered"),
        Err(error) => error.to_string(),
    };
    test_node.run("admin", syntax::to_wire("r.table_create(\"t\")").unwrap(), Map::new()).unwrap();
    let (read, write) = ["read", "write"]
        .map(|what| format!("Cannot perform {what}: primary replica for shard [\"\", +inf) not available"))
        .into();
    let began = Instant::now();
    assert_eq!(run("r.table(\"t\").get(1)"), read);
    assert!(began.elapsed() >= LEADER_LOOKUP_TIMEOUT, "an election may be under way");
    for (term, expected) in [
        ("r.table(\"t\").get(1)", &read),
        ("r.table(\"t\").insert({id: 1})", &write),
        ("r.table(\"t\").insert([{id: 1}, {id: 2}])", &write),
        ("r.table(\"t\").count()", &read),
        ("r.table(\"t\").sum(\"n\")", &read),
        ("r.table(\"t\").limit(1)", &read),
        ("r.table(\"t\").update({n: 1})", &read),
    ] {
        let began = Instant::now();
        assert_eq!(&run(term), expected, "{term}");
        assert!(began.elapsed() < LEADER_LOOKUP_TIMEOUT, "{term} took {:?}", began.elapsed());
    }
}
