//! Writes that fail after a part of them was done: their error is indeterminate.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::{OnResponse, RpcClient, RpcError, RpcHandler, ServerId};
use rekindle_query::{QueryError, QueryServer};
use reql::{ErrorClass, EvalError};
use serde_json::Map;
use support::{SENDER, TestNode};

/// The second byte of a request that writes.
const WRITE: u8 = 2;
/// The response of a node that does not have the shard and knows no leader.
const NOT_HERE: &[u8] = &[2, 0];
/// Of two rows the first was inserted and the second is not here.
const PARTIAL_REPORT: &[u8] = &[0, 2, 1, 0, 0];

const UNAVAILABLE: &str = "Cannot perform write: primary replica for shard [\"\", +inf) not available";

/// Rows with `lost` belong to a shard without a leader; rows with `kept` are written.
struct PartialServer(QueryServer);

impl RpcClient for PartialServer {
    fn call(&self, server: ServerId, request: Bytes, _timeout: Duration, on_response: OnResponse) {
        let says = |word: &str| request.windows(word.len()).any(|bytes| bytes == word.as_bytes());
        if request[1] == WRITE && says("lost") {
            return on_response(Ok(Bytes::from_static(if says("kept") { PARTIAL_REPORT } else { NOT_HERE })));
        }
        let refused = move |why| RpcError::Refused { server, why };
        self.0.handle(SENDER, request, Box::new(move |answer| on_response(answer.map_err(refused))));
    }

    fn is_connected(&self, _server: ServerId) -> bool {
        true
    }
}

fn test_node() -> TestNode {
    let test_node = TestNode::with_client(|server| Arc::new(PartialServer(server)));
    test_node.run("admin", syntax::to_wire("r.table_create(\"t\")").unwrap(), Map::new()).unwrap();
    test_node
}

fn failure(test_node: &TestNode, term: &str) -> EvalError {
    match test_node.run_slow_path(syntax::to_wire(term).unwrap(), Map::new()) {
        Err(QueryError::Eval(error)) => error,
        Err(QueryError::Compile(error)) => panic!("{term}: {error}"),
        Ok(_) => panic!("{term} did not fail"),
    }
}

/// Each term fails for want of a leader, with an error of `class`.
#[track_caller]
fn check(class: ErrorClass, terms: &[&str]) {
    let test_node = test_node();
    // Each looks for the leader for a while.
    let errors: Vec<EvalError> = std::thread::scope(|threads| {
        let running: Vec<_> = terms.iter().map(|term| threads.spawn(|| failure(&test_node, term))).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for (term, error) in terms.iter().zip(errors) {
        assert_eq!((error.class(), error.message().as_str()), (class, UNAVAILABLE), "{term}");
    }
}

#[test]
fn a_partial_write_is_indeterminate() {
    check(
        ErrorClass::OpIndeterminate,
        &[
            "r.table(\"t\").insert([{id: \"kept\"}, {id: \"lost\"}])",
            // More rows than are in flight at once come before it.
            "r.table(\"t\").insert(r.range(3000).map(i => ({id: i})).coerce_to(\"array\").append({id: \"lost\"}))",
            "r.expr([\"a\", \"lost\"]).for_each(id => r.table(\"t\").insert({id: id}))",
            "r.expr([{g: 1, id: \"b\"}, {g: 2, id: \"lost\"}]).group(\"g\").for_each(row => r.table(\"t\").insert(row))",
        ],
    );
}

#[test]
fn a_write_that_failed_as_a_whole_is_definite() {
    check(
        ErrorClass::OpFailed,
        &[
            "r.table(\"t\").insert([{id: \"lost\"}, {id: 7}])",
            "r.expr([\"lost\", \"b\"]).for_each(id => r.table(\"t\").insert({id: id}))",
            "r.table(\"t\").insert(r.range(3000).map(i => ({id: i, is: \"lost\"})).coerce_to(\"array\"))",
        ],
    );
}
