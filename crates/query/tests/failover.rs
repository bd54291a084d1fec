//! Failover of queries from a server that hangs to another leader.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::{OnResponse, RpcClient, RpcError, RpcHandler, ServerId};
use rekindle_query::QueryServer;
use serde_json::Map;
use support::{Outcome, SENDER, TestNode};

/// A server that hangs would be disconnected after this time.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(20);
/// All responses must arrive much earlier, with some reserve for a busy machine.
const RESPONSE_DEADLINE: Duration = Duration::from_secs(10);
/// The delay of a slow server.
const SLOW_DELAY: Duration = Duration::from_secs(4);

/// The second byte of requests that are answered by a server without its shards.
const NEXT: u8 = 6;
/// The requests with this name in them are treated specially.
const NAME: &[u8] = b"special";

/// The other server, which leads nothing as far as the sender can see.
struct Other {
    server: QueryServer,
    /// How many of these requests get no response. While this is not zero, the server hangs.
    lost: AtomicU8,
    hangs: bool,
}

impl Other {
    /// The delay of a request; `None` if it never arrives.
    fn delay(&self, request: &[u8]) -> Option<Duration> {
        let is_special = request.windows(NAME.len()).any(|bytes| bytes == NAME);
        if !self.hangs {
            return Some(if is_special { SLOW_DELAY } else { Duration::ZERO });
        }
        let less = |left: u8| left.checked_sub(1);
        let is_lost =
            is_special && self.lost.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        (!is_lost && request[1] != NEXT).then_some(Duration::ZERO)
    }
}

impl RpcClient for Other {
    fn call(&self, server: ServerId, request: Bytes, timeout: Duration, on_response: OnResponse) {
        let (query_server, delay) = (self.server.clone(), self.delay(&request));
        std::thread::spawn(move || match delay {
            None => {
                std::thread::sleep(timeout.min(HEARTBEAT_TIMEOUT));
                on_response(Err(RpcError::NoResponse(server)));
            }
            Some(delay) => {
                std::thread::sleep(delay);
                let refused = move |why| RpcError::Refused { server, why };
                query_server.handle(
                    SENDER,
                    request,
                    Box::new(move |answer| on_response(answer.map_err(refused))),
                );
            }
        });
    }

    fn is_connected(&self, _server: ServerId) -> bool {
        true
    }
}

/// A node with a table of one row.
fn test_node(hangs: bool, lost: u8) -> TestNode {
    let test_node =
        TestNode::with_client(|server| Arc::new(Other { server, hangs, lost: AtomicU8::new(lost) }));
    run(&test_node, "r.table_create(\"t\")");
    run(&test_node, "r.table(\"t\").insert({id: \"row\", n: 7})");
    test_node
}

fn run(test_node: &TestNode, term: &str) -> String {
    match test_node.run("admin", syntax::to_wire(term).unwrap(), Map::new()) {
        Ok(Outcome::Atom(datum)) => datum.to_json_string(),
        Ok(Outcome::Stream(_)) => "a stream".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check(test_node: &TestNode, term: &str, expected: &str) {
    let began = Instant::now();
    assert_eq!(run(test_node, term), expected);
    assert!(began.elapsed() < RESPONSE_DEADLINE, "after {:?}", began.elapsed());
}

const IN_DOUBT: &str = "Cannot perform write: lost contact with primary replica";

#[test]
fn a_read_of_one_row_is_retried_at_the_new_leader() {
    check(&test_node(true, 2), "r.table(\"t\").get(\"special\")", "null");
}

#[test]
fn a_read_of_many_rows_is_retried_at_the_new_leader() {
    check(&test_node(true, 1), "r.table(\"t\").sum(x => x[\"n\"].add(x[\"special\"].default(7)))", "14");
    check(&test_node(true, 1), "r.table(\"t\").get_all(\"special\", \"row\").count()", "1");
}

#[test]
fn a_write_is_indeterminate_when_another_server_leads() {
    check(&test_node(true, 1), "r.table(\"t\").get(\"special\").replace({id: \"special\"})", IN_DOUBT);
    check(
        &test_node(true, 1),
        "r.table(\"t\").insert([{id: \"special\"}, {id: \"other\"}])[\"inserted\"]",
        IN_DOUBT,
    );
}

#[test]
fn a_slow_server_is_waited_for() {
    let test_node = test_node(false, 0);
    check(&test_node, "r.table(\"t\").insert({id: \"special\"})[\"inserted\"]", "1");
    check(
        &test_node,
        "r.table(\"t\").insert([{id: \"special\"}, {id: 1}], conflict: \"replace\")[\"unchanged\"]",
        "1",
    );
    check(&test_node, "r.table(\"t\").get(\"special\")", "{\"id\":\"special\"}");
}
