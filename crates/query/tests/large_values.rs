//! Values that share parts are very large when they are encoded: for a function that is stored, and for another server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate reql as rekindle_reql;

mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use io::memory::{Account, Budget, Metered};
use rekindle_query::QueryError;
use reql::ErrorClass;
use serde_json::{Map, Value, json};
use support::{Outcome, TestNode};

#[global_allocator]
static ALLOCATOR: Metered<std::alloc::System> = Metered(std::alloc::System);

const TOO_LARGE_TO_SEND: &str = "The functions of the query, with the values that they use, are too large to be sent to another \
    server (limit 255 MiB).";
const TOO_LARGE_TO_STORE: &str =
    "The function is too large to be stored: its text, with the values that it uses, has more than 16 MiB.";
const NO_MEMORY: &str = "The query needs more memory than is left: ";

/// `r.do` of a function of a value with ten to the power of ten parts, in the memory of twice 100,000.
fn enormous(of: &str) -> String {
    format!("r.do([r.expr([1]).mul(100000)].mul(100000), v => {of})")
}

fn tried(test_node: &TestNode, term: Value) -> Result<String, QueryError> {
    match test_node.run_slow_path(term, Map::new())? {
        Outcome::Atom(datum) => Ok(datum.to_json_string()),
        Outcome::Stream(batches) => Ok(datum::Datum::from(batches.concat()).to_json_string()),
    }
}

#[track_caller]
fn done(test_node: &TestNode, term: &str) -> String {
    tried(test_node, syntax::to_wire(term).unwrap()).unwrap_or_else(|error| panic!("{term}: {error}"))
}

#[track_caller]
fn fails(test_node: &TestNode, term: Value, class: ErrorClass, text: &str) {
    match tried(test_node, term.clone()) {
        Err(QueryError::Eval(error)) => {
            assert!(error.message().starts_with(text), "{term}: {}", error.message());
            assert_eq!(error.class(), class, "{term}");
        }
        Err(error) => panic!("{term}: {error}"),
        Ok(answer) => panic!("{term}: {answer}"),
    }
}

/// A node with a table of one row.
fn with_a_row(test_node: TestNode) -> TestNode {
    done(&test_node, "r.table_create(\"t\")");
    done(&test_node, "r.table(\"t\").insert({id: 1, n: 1})");
    test_node
}

#[test]
fn a_very_large_function_is_not_stored() {
    let test_node = with_a_row(TestNode::new());
    let refused = |term: Value| fails(&test_node, term, ErrorClass::ResourceLimit, TOO_LARGE_TO_STORE);
    let index = "r.table(\"t\").index_create(\"i\", x => v.nth(0).nth(0).add(x[\"n\"]))";
    refused(syntax::to_wire(&enormous(index)).unwrap());
    let hook = "r.table(\"t\").set_write_hook((c, old, new) => r.branch(v.is_empty(), old, new))";
    refused(syntax::to_wire(&enormous(hook)).unwrap());
    // As bytes, whose limit is soon reached.
    let binary = |start: &str| {
        let text = format!("{start}{}[69,[[2,[1]],1]]", " ".repeat(16 << 20));
        json!([155, [text]])
    };
    let table = syntax::to_wire("r.table(\"t\")").unwrap();
    refused(json!([75, [table, "i", binary("$reql_index_function$rekindle\x01\0")]]));
    refused(json!([189, [table, binary("$reql_write_hook_function$")]]));
    assert_eq!(done(&test_node, "r.table(\"t\").index_list()"), "[]");
}

#[test]
fn a_very_large_request_is_not_sent() {
    let test_node = with_a_row(TestNode::remote(None));
    let refused = |of: &str| {
        let term = syntax::to_wire(&enormous(of)).unwrap();
        fails(&test_node, term, ErrorClass::ResourceLimit, TOO_LARGE_TO_SEND);
    };
    refused("r.table(\"t\").map(x => v.nth(0).nth(0).add(x[\"n\"])).coerce_to(\"array\")");
    refused("r.table(\"t\").map(x => v.nth(0).nth(0).add(x[\"n\"])).sum()");
    refused(
        "r.table(\"t\").order_by(index: \"id\").filter(x => v.nth(0).contains(x[\"n\"])).coerce_to(\"array\")",
    );
    // Here every value is evaluated already.
    done(
        &with_a_row(TestNode::new()),
        &enormous("r.table(\"t\").map(x => v.nth(0).nth(0).add(x[\"n\"])).sum()"),
    );
}

#[test]
fn a_request_without_memory_is_not_sent() {
    let memory = Budget::new(64 << 20);
    let test_node = with_a_row(TestNode::with_memory(&memory));
    let account = Account::new(memory);
    let _work = account.enter();
    let term = enormous("r.table(\"t\").map(x => v.nth(0).nth(0).add(x[\"n\"])).sum()");
    fails(&test_node, syntax::to_wire(&term).unwrap(), ErrorClass::ResourceLimit, NO_MEMORY);
}

#[test]
fn a_write_without_an_encodable_report_is_indeterminate() {
    let test_node = with_a_row(TestNode::with_memory(&Budget::new(160 << 20)));
    done(&test_node, "r.table(\"t\").insert(r.range(4).map(i => ({id: i, n: 2})), conflict: \"replace\")");
    // Sixteen million bytes for each row.
    let pad = format!("r.do(\"{}\", p => p.add({}))", "x".repeat(1 << 16), vec!["p"; 255].join(", "));
    let write = format!("r.do({pad}, p => r.table(\"t\").update({{n: 3, pad: p}}, return_changes: true))");
    let text =
        "Cannot perform write: it was carried out, but its results cannot be sent, since there is no memory";
    fails(&test_node, syntax::to_wire(&write).unwrap(), ErrorClass::OpIndeterminate, text);
    assert_eq!(done(&test_node, "r.table(\"t\").filter(x => x[\"n\"].eq(3)).count()"), "4");
}

/// Local rows are written, and the client gets their counts.
#[test]
fn rows_with_a_function_too_large_to_send_fail_one_by_one() {
    let test_node = with_a_row(TestNode::remote(None));
    done(&test_node, "r.table(\"t\").insert({id: 2, n: 1})");
    let write = "r.do([r.expr([0]).mul(5500)].mul(10000), v => r.table(\"t\").update(x => ({n: v.count()})))";
    let told = done(&test_node, write);
    assert!(told.contains("\"errors\":2") && told.contains("\"replaced\":0"), "{told}");
    assert!(told.contains("are too large to be sent to another server (limit 255 MiB)"), "{told}");
    assert_eq!(done(&test_node, "r.table(\"t\").filter({n: 1}).count()"), "2");
}

/// A value may be too large for a row and still be used in a function.
#[test]
fn a_function_may_use_values_that_are_too_large_for_a_row() {
    let test_node = with_a_row(TestNode::remote(None));
    // Nine times sixteen million bytes.
    let pad = format!("r.do(\"{}\", p => p.add({}))", "x".repeat(1 << 16), vec!["p"; 255].join(", "));
    let pads = |use_of: &str| format!("r.do({pad}, p => r.do([p].mul(9), v => {use_of}))");
    let told = done(&test_node, &pads("r.table(\"t\").update(x => ({n: v.count()}))"));
    assert!(told.contains("\"errors\":0") && told.contains("\"replaced\":1"), "{told}");
    let conflict =
        "r.table(\"t\").insert({id: 1}, conflict: (id, old, new) => ({id: id, n: v.count().add(1)}))";
    let told = done(&test_node, &pads(conflict));
    assert!(told.contains("\"errors\":0") && told.contains("\"replaced\":1"), "{told}");
    let told = done(&test_node, &pads("r.table(\"t\").update({v: v})"));
    assert!(
        told.contains("\"errors\":1") && told.contains("the row has more than 134217728 bytes"),
        "{told}"
    );
    assert_eq!(done(&test_node, "r.table(\"t\").get(1)"), "{\"id\":1,\"n\":10}");
}
