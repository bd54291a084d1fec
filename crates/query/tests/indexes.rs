//! Indexes while they are under construction.

// The notation is shared with the tests of `reql`, which know the crate by this name.
extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use rekindle_query::QueryError;
use serde_json::Map;
use support::{Outcome, TestNode};

fn answer(test_node: &TestNode, term: &str) -> String {
    let term = syntax::to_wire(term).expect("a term");
    match test_node.run("admin", term, Map::new()) {
        Ok(Outcome::Atom(datum)) => datum.to_json_string(),
        Ok(Outcome::Stream(batches)) => format!("{:?}", batches.concat()),
        Err(QueryError::Eval(error)) => error.message(),
        Err(QueryError::Compile(error)) => error.to_string(),
    }
}

#[test]
fn an_index_under_construction_says_so_everywhere() {
    let mut test_node = TestNode::without_index_thread();
    answer(&test_node, r#"r.table_create("t")"#);
    answer(&test_node, r#"r.table("t").insert(r.range(10).map(i => ({id: i, a: i})))"#);
    assert_eq!(answer(&test_node, r#"r.table("t").index_create("a")"#), r#"{"created":1}"#);
    let status = r#"r.table("t").index_status("a").pluck("ready", "progress")"#;
    assert_eq!(answer(&test_node, status), r#"[{"progress":0,"ready":false}]"#);
    let unfinished = "Index `a` on table `test.t` was accessed before its construction was finished.";
    for read in [
        r#"r.table("t").get_all(1, index: "a").count()"#,
        r#"r.table("t").order_by(index: "a").limit(1)"#,
        r#"r.table("t").between(1, 2, index: "a")"#,
    ] {
        assert_eq!(answer(&test_node, read), unfinished, "{read}");
    }
    let jobs = r#"r.db("rethinkdb").table("jobs").filter({type: "index_construction"})"#;
    assert_eq!(
        answer(&test_node, &format!(r#"{jobs}["info"].coerce_to("array")"#)),
        r#"[{"db":"test","index":"a","progress":0,"table":"t"}]"#
    );
    let stopped = answer(&test_node, &format!(r#"{jobs}.delete()["first_error"]"#));
    assert_eq!(stopped, r#""Jobs of type `index_construction` cannot be interrupted.""#);

    test_node.start_index_thread();
    let waited = r#"r.table("t").index_wait().pluck("ready", "progress")"#;
    assert_eq!(answer(&test_node, waited), r#"[{"ready":true}]"#);
    assert_eq!(answer(&test_node, &format!("{jobs}.count()")), "0");
    assert_eq!(answer(&test_node, r#"r.table("t").get_all(1, index: "a").count()"#), "1");
}
