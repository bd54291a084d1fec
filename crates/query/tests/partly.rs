//! Writes of which a part was done when the rest failed: nobody is told that nothing happened.

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
use support::{ASKER, House};

/// The second byte of a question that writes.
const WRITE: u8 = 2;
/// What a node says that does not have what it is asked for, nor knows who does.
const MOVED: &[u8] = &[2, 0];
/// Of two rows the first was inserted and the second is elsewhere.
const PARTLY: &[u8] = &[0, 2, 1, 0, 0];

const UNAVAILABLE: &str = "Cannot perform write: primary replica for shard [\"\", +inf) not available";

/// Nobody leads the shard of rows that say `lost`; those that say `kept` are written.
struct Partly(QueryServer);

impl RpcClient for Partly {
    fn call(&self, server: ServerId, question: Bytes, _patience: Duration, answered: OnResponse) {
        let says = |word: &str| question.windows(word.len()).any(|bytes| bytes == word.as_bytes());
        if question[1] == WRITE && says("lost") {
            return answered(Ok(Bytes::from_static(if says("kept") { PARTLY } else { MOVED })));
        }
        let refused = move |why| RpcError::Refused { server, why };
        self.0.handle(ASKER, question, Box::new(move |answer| answered(answer.map_err(refused))));
    }

    fn is_connected(&self, _server: ServerId) -> bool {
        true
    }
}

fn house() -> House {
    let house = House::asking(|desk| Arc::new(Partly(desk)));
    house.run("admin", syntax::to_wire("r.table_create(\"t\")").unwrap(), Map::new()).unwrap();
    house
}

fn failure(house: &House, term: &str) -> EvalError {
    match house.run_long(syntax::to_wire(term).unwrap(), Map::new()) {
        Err(QueryError::Eval(error)) => error,
        Err(QueryError::Compile(error)) => panic!("{term}: {error}"),
        Ok(_) => panic!("{term} did not fail"),
    }
}

/// Each term fails because nobody leads a shard, and is told as one of `class`.
#[track_caller]
fn check(class: ErrorClass, terms: &[&str]) {
    let house = house();
    // Each looks for the shard for a while.
    let errors: Vec<EvalError> = std::thread::scope(|threads| {
        let running: Vec<_> = terms.iter().map(|term| threads.spawn(|| failure(&house, term))).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for (term, error) in terms.iter().zip(errors) {
        assert_eq!((error.class(), error.message().as_str()), (class, UNAVAILABLE), "{term}");
    }
}

#[test]
fn what_was_done_in_part_is_in_doubt() {
    check(
        ErrorClass::OpIndeterminate,
        &[
            "r.table(\"t\").insert([{id: \"kept\"}, {id: \"lost\"}])",
            // More than are written at once come before it.
            "r.table(\"t\").insert(r.range(3000).map(i => ({id: i})).coerce_to(\"array\").append({id: \"lost\"}))",
            "r.expr([\"a\", \"lost\"]).for_each(id => r.table(\"t\").insert({id: id}))",
            "r.expr([{g: 1, id: \"b\"}, {g: 2, id: \"lost\"}]).group(\"g\").for_each(row => r.table(\"t\").insert(row))",
        ],
    );
}

#[test]
fn what_failed_as_a_whole_is_certain_not_to_have_happened() {
    check(
        ErrorClass::OpFailed,
        &[
            "r.table(\"t\").insert([{id: \"lost\"}, {id: 7}])",
            "r.expr([\"lost\", \"b\"]).for_each(id => r.table(\"t\").insert({id: id}))",
            "r.table(\"t\").insert(r.range(3000).map(i => ({id: i, is: \"lost\"})).coerce_to(\"array\"))",
        ],
    );
}
