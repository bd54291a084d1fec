//! Tables that are large enough to be split into scan ranges, in one shard and in several.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::sync::Arc;

use cluster::RpcHandler;
use datum::Datum;
use rekindle_query::{Answer, QueryError};
use reql::Cancel;
use serde_json::Map;
use support::{Outcome, TestNode, query};

const ROWS: usize = 40_000;

fn test_node(shards: usize) -> TestNode {
    filled(TestNode::new(), shards)
}

fn filled(test_node: TestNode, shards: usize) -> TestNode {
    let create = format!("r.table_create(\"t\", shards: {shards})");
    answer(&test_node, &create);
    // Some words have escapes: these rows cannot be evaluated in place.
    let words = r#"r.branch(i.lt(10000), "a b", i.lt(30000), "a \"b\" c", "d")"#;
    let insert = format!(
        "r.table(\"t\").insert(r.range({ROWS}).map(i => \
         ({{id: i, a: i.mod(7), words: {words}, pad: \"0123456789012345678901234567890\"}})))"
    );
    answer(&test_node, &insert);
    test_node
}

fn answer(test_node: &TestNode, term: &str) -> Outcome {
    test_node
        .run_slow_path(syntax::to_wire(term).unwrap(), Map::new())
        .unwrap_or_else(|error| panic!("{term}: {error}"))
}

#[track_caller]
fn check(test_node: &TestNode, term: &str, expected: &str) {
    match answer(test_node, term) {
        Outcome::Atom(datum) => assert_eq!(datum.to_json_string(), expected, "{term}"),
        Outcome::Stream(batches) => {
            assert_eq!(Datum::from(batches.concat()).to_json_string(), expected, "{term}");
        }
    }
}

fn check_all(test_node: &TestNode) {
    let sum = ROWS * (ROWS - 1) / 2;
    check(test_node, "r.table(\"t\").count()", &ROWS.to_string());
    check(test_node, "r.table(\"t\").between(10, 39990).count()", "39980");
    check(test_node, "r.table(\"t\").map(x => x[\"id\"]).sum()", &sum.to_string());
    check(test_node, "r.table(\"t\")[\"id\"].reduce((a, b) => a.add(b))", &sum.to_string());
    check(test_node, "r.table(\"t\").filter(x => x[\"a\"].eq(3)).count()", "5714");
    check(test_node, "r.table(\"t\").group(\"a\").count().ungroup()[\"reduction\"].sum()", &ROWS.to_string());
    check(test_node, "r.table(\"t\").max(\"a\")[\"id\"]", "6");
    check(test_node, "r.table(\"t\").map(x => x[\"words\"].split(\" \").count()).sum()", "90000");
    check(
        test_node,
        "r.table(\"t\").group(x => x[\"words\"].split(\" \").count()).count().ungroup()[\"reduction\"]",
        "[10000,10000,20000]",
    );
    check(test_node, "r.table(\"t\").filter(x => x[\"words\"].gt(\"a b\")).count()", "10000");
    check(
        test_node,
        "r.table(\"t\").group(\"words\").count().ungroup()[\"reduction\"]",
        "[20000,10000,10000]",
    );
    check(test_node, "r.table(\"t\").avg(\"id\")", "19999.5");
    check(test_node, "r.table(\"t\")[\"a\"].distinct()", "[0,1,2,3,4,5,6]");
    let ordered = "r.table(\"t\").order_by(index: r.desc(\"id\"))[\"id\"].coerce_to(\"array\")";
    check(test_node, &format!("{ordered}.slice(0, 3)"), "[39999,39998,39997]");
    check(test_node, &format!("{ordered}.nth(-1)"), "0");
    check(test_node, "r.table(\"t\").order_by(r.desc(\"a\"), \"id\").limit(2)[\"id\"]", "[6,13]");
}

#[test]
fn scan_ranges_of_one_shard_are_merged() {
    check_all(&test_node(1));
}

#[test]
fn scan_ranges_of_several_shards_are_merged() {
    let test_node = test_node(3);
    answer(&test_node, "r.table(\"t\").reconfigure(shards: 4, replicas: 1)");
    check_all(&test_node);
}

#[test]
fn remote_shards_are_merged() {
    let test_node = filled(TestNode::remote(None), 3);
    answer(&test_node, "r.table(\"t\").reconfigure(shards: 4, replicas: 1)");
    check_all(&test_node);
}

/// Also with more rows than a round of interleaving, and with steps that make several items or none of a row.
#[test]
fn unordered_rows_have_the_same_order_on_all_servers() {
    let (near, far) = (test_node(2), filled(TestNode::remote(None), 2));
    let texts = [
        "r.table(\"t\")[\"id\"]",
        "r.table(\"t\").filter(x => x[\"a\"].eq(3))[\"id\"]",
        "r.table(\"t\").filter(x => x[\"id\"].mod(3000).lt(2))[\"id\"]",
        "r.table(\"t\").concat_map(x => [x[\"id\"], x[\"a\"], x[\"id\"]])",
        "r.table(\"t\").between(100, 9000)[\"id\"].limit(5000)",
        "r.table(\"t\").get_all(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)[\"id\"]",
        "r.table(\"t\").get_all(1, 1, 3, index: \"a\")[\"id\"]",
        "r.table(\"t\").between(0, 3, index: \"a\").filter(x => x[\"id\"].mod(2).eq(0))[\"id\"].limit(9000)",
        "r.table(\"t\").filter(x => r.table(\"t\").get(x[\"id\"])[\"a\"].eq(2)).limit(300)[\"id\"]",
    ];
    for test_node in [&near, &far] {
        answer(test_node, "r.table(\"t\").index_create(\"a\")");
        answer(test_node, "r.table(\"t\").index_wait()");
    }
    for text in texts {
        let (here, there) = (stream(&near, text), stream(&far, text));
        assert!(here == there, "{text}: {} and {} items", here.len(), there.len());
    }
    let first = stream(&far, "r.table(\"t\")[\"id\"].limit(10)");
    assert_eq!(Datum::from(first).to_json_string(), "[20,4,5,3,0,1,43,6,30,25]");
}

fn stream(test_node: &TestNode, text: &str) -> Vec<Datum> {
    let all = query(syntax::to_wire(text).unwrap(), Map::new()).unwrap();
    let on_response = test_node.session("admin").run(&all, Arc::new(Cancel::new())).unwrap();
    let Answer::Stream(mut cursor) = on_response.answer else { panic!("{text} is a stream") };
    let mut seen = Vec::new();
    loop {
        let batch = cursor.next_batch().unwrap();
        seen.extend(batch.items);
        if batch.done {
            return seen;
        }
    }
}

#[test]
fn a_lost_stream_continues_at_its_position() {
    let expected: Vec<Datum> = (0..ROWS).map(|id| Datum::Number(id as f64)).collect();
    let ordered = all_though_it_is_lost("r.table(\"t\").order_by(index: \"id\")[\"id\"]");
    assert!(ordered == expected, "{} rows", ordered.len());
    let interleaved = all_though_it_is_lost("r.table(\"t\")[\"id\"]");
    assert!(interleaved == stream(&test_node(2), "r.table(\"t\")[\"id\"]"), "{} rows", interleaved.len());
}

/// The items of a stream from another node that closes it after each batch.
fn all_though_it_is_lost(text: &str) -> Vec<Datum> {
    let test_node = filled(TestNode::remote(None), 2);
    let all = query(syntax::to_wire(text).unwrap(), Map::new()).unwrap();
    let on_response = test_node.session("admin").run(&all, Arc::new(Cancel::new())).unwrap();
    let Answer::Stream(mut cursor) = on_response.answer else { panic!("a table is a stream") };
    let (mut seen, mut done) = (Vec::new(), false);
    while !done {
        let batch = cursor.next_batch().unwrap();
        seen.extend(batch.items);
        done = batch.done;
        // The receiving node closes all cursors between two batches.
        test_node.server.iter().for_each(|server| server.disconnected(support::SENDER));
    }
    seen
}

#[test]
fn a_cancelled_query_stops() {
    stops(&test_node(1));
    stops(&filled(TestNode::remote(None), 1));
}

fn stops(test_node: &TestNode) {
    let query =
        query(syntax::to_wire("r.table(\"t\").map(x => x[\"id\"]).sum()").unwrap(), Map::new()).unwrap();
    let cancel = Arc::new(Cancel::new());
    cancel.set();
    let outcome = test_node.session("admin").run(&query, cancel);
    assert!(matches!(outcome, Err(QueryError::Eval(_))));
}

#[test]
fn a_cursor_can_be_cancelled_and_reads_as_of_its_opening() {
    stops_and_shows(&test_node(1));
    stops_and_shows(&filled(TestNode::remote(None), 1));
}

fn stops_and_shows(test_node: &TestNode) {
    let query = query(syntax::to_wire("r.table(\"t\")").unwrap(), Map::new()).unwrap();
    let cancel = Arc::new(Cancel::new());
    let Answer::Stream(mut cursor) = test_node.session("admin").run(&query, cancel.clone()).unwrap().answer
    else {
        panic!("a table is a stream");
    };
    let first = cursor.next_batch().unwrap();
    answer(test_node, "r.table(\"t\").delete()");
    let second = cursor.next_batch().unwrap();
    assert!(!first.done && !second.done && !second.items.is_empty());
    cancel.set();
    assert!(cursor.next_batch().is_err());
}

#[test]
fn a_query_that_is_deleted_from_the_jobs_says_so() {
    let test_node = test_node(1);
    let query = query(syntax::to_wire("r.table(\"t\")").unwrap(), Map::new()).unwrap();
    let on_response = test_node.session("admin").run(&query, Arc::new(Cancel::new())).unwrap();
    let Answer::Stream(mut cursor) = on_response.answer else { panic!("a table is a stream") };
    cursor.next_batch().unwrap();
    let jobs = "r.db(\"rethinkdb\").table(\"jobs\").filter(j => j[\"info\"][\"query\"].match(\"jobs\").eq(null)).delete()[\"deleted\"]";
    check(&test_node, jobs, "1");
    let error = cursor.next_batch().unwrap_err();
    assert_eq!(error.message(), "Query terminated by the `rethinkdb.jobs` table.");
}
