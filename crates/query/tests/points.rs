//! Queries on the fast path have the same results as on the slow path.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

// The notation is shared with the tests of `reql`, which know the crate by this name.
extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::sync::Arc;

use datum::Datum;
use rekindle_query::{Answer, PointAnswer, Query};
use reql::Cancel;
use reql::wire::parse_term;
use serde_json::{Map, Value, json};
use support::{Outcome, TestNode, block_on, query};

fn test_node() -> TestNode {
    let test_node = TestNode::new();
    let options = json!({"shards": 3, "replicas": 1});
    test_node.run_slow_path(json!([60, ["t"], options]), Map::new()).unwrap();
    let rows: Vec<Value> = (0..400)
        .map(|n| match n % 4 {
            0 => json!({"id": n, "text": "x".repeat(n)}),
            1 => json!({"id": format!("key{n}")}),
            2 => json!({"id": n % 8 == 2, "n": n}),
            _ => json!({"id": [2, [n, "in an array"]]}),
        })
        .collect();
    test_node
        .run_slow_path(json!([56, [[15, ["t"]], [2, rows]], {"conflict": "replace"}]), Map::new())
        .unwrap();
    test_node
}

fn wire(term: &str) -> Value {
    syntax::to_wire(term).unwrap_or_else(|error| panic!("{term}: {error}"))
}

/// The result on the slow path.
fn long(test_node: &TestNode, term: &str) -> String {
    match test_node.run_slow_path(wire(term), Map::new()) {
        Ok(Outcome::Atom(value)) => format!("{value:?}"),
        Ok(Outcome::Stream(batches)) => format!("{:?}", Datum::from(batches.concat())),
        Err(error) => panic!("{term}: {error:?}"),
    }
}

/// The result on the fast path, if it takes the query.
fn at_once(test_node: &TestNode, term: &str) -> Option<String> {
    match test_node.session("admin").point(&Arc::new(query(wire(term), Map::new()).unwrap()))? {
        PointAnswer::Count(value) => Some(format!("{value:?}")),
        PointAnswer::Rows(rows) => Some(format!("[{}]", std::str::from_utf8(rows.json()).unwrap())),
        _ => panic!("{term}: another kind of answer"),
    }
}

#[test]
fn short_ranges_and_counts_have_the_same_result_as_on_the_slow_path() {
    let test_node = test_node();
    let tables = [
        "T",
        "T.between(100, 200)",
        "T.between(100, 200, left_bound: \"open\", right_bound: \"closed\")",
        "T.between(r.minval, \"key2\", index: \"id\")",
        "T.between(300, r.maxval)",
        "T.between(true, 8)",
        "T.between(200, 100)",
        "T.between(\"zzz\", r.maxval)",
    ];
    let orders = [
        "",
        ".order_by(index: \"id\")",
        ".order_by(index: r.desc(\"id\"))",
        ".order_by(index: r.asc(\"id\"))",
    ];
    for table in tables {
        for order in orders {
            for most in [1, 2, 7, 50, 128] {
                let term = format!("{table}{order}.limit({most})").replace('T', "r.table(\"t\")");
                assert_eq!(at_once(&test_node, &term), Some(long(&test_node, &term)), "{term}");
            }
        }
    }
    let count = "r.table(\"t\").count()";
    assert_eq!(at_once(&test_node, count), Some(long(&test_node, count)));
}

#[test]
fn other_ranges_take_the_slow_path() {
    let test_node = test_node();
    let others = [
        "T.limit(0)",
        "T.limit(129)",
        "T.limit(1.5)",
        "T.between(null, 5).limit(5)",
        "T.between([1], 5).limit(5)",
        "T.between(1, 5, index: \"n\").limit(5)",
        "T.between(1, 5, left_bound: \"half\").limit(5)",
        "T.order_by(\"n\").limit(5)",
        "T.order_by(\"n\", index: \"id\").limit(5)",
        "T.order_by(index: \"id\").between(1, 5).limit(5)",
        "T.filter({n: 1}).limit(5)",
        "r.table(\"missing\").limit(5)",
        "r.table(\"missing\").count()",
        "T.count({n: 1})",
        "T.limit(5).count()",
    ];
    for term in others {
        let term = term.replace('T', "r.table(\"t\")");
        assert_eq!(at_once(&test_node, &term), None, "{term}");
    }
    // Larger than a first batch.
    let large = json!([56, [[15, ["t"]], {"id": -1, "text": "x".repeat(1 << 19)}]]);
    test_node.run_slow_path(large, Map::new()).unwrap();
    let term = "r.table(\"t\").between(-2, 10).limit(3)";
    assert_eq!(at_once(&test_node, term), None);
    assert!(long(&test_node, term).contains("xxx"), "the long way answers it");
}

/// A query as another protocol would build it: without a text to parse again.
fn built(term: &str) -> Arc<Query> {
    let term = parse_term(wire(term).to_string().as_bytes()).unwrap();
    Arc::new(Query::new(term, Vec::new()))
}

#[test]
fn a_query_without_a_text_runs_on_both_paths() {
    // Some requests are lost, so that reads are retried.
    let test_node = TestNode::remote(Some(7));
    let session = test_node.session("admin");
    let run = |term: &str| match session.run(&built(term), Arc::new(Cancel::new())).unwrap().answer {
        Answer::Atom(datum) => datum,
        Answer::Stream(_) => panic!("{term}: a stream"),
    };
    run("r.table_create(\"t\")");
    run("r.table(\"t\").insert(r.range(40).map(i => ({id: i})).coerce_to(\"array\"))");
    for n in 0..40 {
        let answer = session.point(&built(&format!("r.table(\"t\").get({n})")));
        test_node.service.flush();
        let Some(PointAnswer::RemoteRead(read)) = answer else { panic!("not remote") };
        assert_eq!(block_on(read).unwrap(), run(&format!("r.table(\"t\").get({n})")));
    }
}
