//! Writes while their table is resharded.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Map;
use support::{Outcome, TestNode};

const ROWS: usize = 2_000;

fn run(test_node: &TestNode, term: &str) -> String {
    let term = syntax::to_wire(term).unwrap();
    match test_node.run("admin", term, Map::new()) {
        Ok(Outcome::Atom(datum)) => datum.to_json_string(),
        Ok(Outcome::Stream(_)) => "a stream".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn no_write_is_lost_or_refused_during_resharding() {
    write_while_shards_move(TestNode::new());
}

#[test]
fn no_remote_write_is_lost_or_refused_during_resharding() {
    write_while_shards_move(TestNode::remote(None));
}

#[test]
fn totals_of_a_table_continue_after_resharding() {
    let test_node = TestNode::new();
    run(&test_node, "r.table_create(\"t\")");
    run(&test_node, "r.table(\"t\").insert([{id: 1}, {id: 2}, {id: 3}])");
    let total = "r.db(\"rethinkdb\").table(\"stats\").filter(x => x[\"id\"][0].eq(\"table_server\"))\
                 .nth(0)[\"query_engine\"][\"written_docs_total\"]";
    assert_eq!(run(&test_node, total), "3");
    run(&test_node, "r.table(\"t\").reconfigure(shards: 2, replicas: 1)");
    run(&test_node, "r.table(\"t\").insert({id: 4})");
    run(&test_node, "r.table(\"t\").rebalance()");
    assert_eq!(run(&test_node, total), "4");
}

fn write_while_shards_move(test_node: TestNode) {
    run(&test_node, "r.table_create(\"t\")");
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for shards in [2, 3, 1, 4].into_iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let answer = run(
                    &test_node,
                    &format!("r.table(\"t\").reconfigure(shards: {shards}, replicas: 1)[\"reconfigured\"]"),
                );
                assert_eq!(answer, "1");
            }
        });
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let test_node = &test_node;
                threads.spawn(move || {
                    for row in (0..ROWS).filter(|row| row % 2 == writer) {
                        let one =
                            run(test_node, &format!("r.table(\"t\").insert({{id: {row}}})[\"inserted\"]"));
                        let all = format!(
                            "r.table(\"t\").insert([{{id: \"a{row}\"}}, {{id: \"b{row}\"}}])[\"inserted\"]"
                        );
                        assert_eq!((one.as_str(), run(test_node, &all).as_str()), ("1", "2"));
                    }
                })
            })
            .collect();
        let ends: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
    });
    assert_eq!(run(&test_node, "r.table(\"t\").count()"), (3 * ROWS).to_string());
    assert_eq!(run(&test_node, "r.table(\"t\").coerce_to(\"array\").count()"), (3 * ROWS).to_string());
}
