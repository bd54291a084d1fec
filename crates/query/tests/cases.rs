//! Runs the cases in `testdata/`: input, four dashes, output.
//!
//! The first line of a case says how to run the rest:
//!
//! - `fresh` starts a new node and runs the terms, one per line, without checking results
//! - `run` checks the result of a term; `run array_limit=4 user=bob` with options and another user
//! - `long` uses the slow path
//! - `way` shows an error with its backtrace
//! - `batches` shows the batches of a stream
//!
//! Terms are written as in `crates/reql/tests/data/syntax.rs`. `UPDATE=1 cargo test` rewrites the
//! outputs.

// The notation is shared with the tests of `reql`, which know the crate by this name.
extern crate reql as rekindle_reql;

#[path = "../../reql/tests/data/cases.rs"]
mod cases;
mod support;
#[path = "../../reql/tests/data/syntax.rs"]
mod syntax;

use std::cell::RefCell;

use datum::Datum;
use rekindle_query::QueryError;
use serde_json::{Map, Value};
use support::{Outcome, TestNode};

#[test]
fn every_case_has_the_result_in_its_file() {
    run_all(TestNode::new);
}

#[test]
fn explanations_of_local_rows() {
    let test_node = RefCell::new(TestNode::new());
    cases::run(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/near"), |directive, input| {
        answer(&test_node, TestNode::new, directive, input)
    });
}

#[test]
fn explanations_of_remote_rows_are_the_same() {
    let test_node = RefCell::new(TestNode::remote(None));
    cases::run(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/far"), |directive, input| {
        answer(&test_node, || TestNode::remote(None), directive, input)
    });
}

/// The seed for lost requests.
const LOSSES: u64 = 4711;

#[test]
fn every_case_has_the_same_result_on_a_remote_node() {
    run_all(|| TestNode::remote(None));
}

#[test]
fn every_case_has_the_same_result_with_lost_requests() {
    println!("SEED={LOSSES}");
    run_all(|| TestNode::remote(Some(LOSSES)));
}

fn run_all(new: fn() -> TestNode) {
    let test_node = RefCell::new(new());
    cases::run(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata"), |directive, input| {
        answer(&test_node, new, directive, input)
    });
}

fn answer(test_node: &RefCell<TestNode>, new: fn() -> TestNode, directive: &str, input: &str) -> String {
    let (what, options) = directive.split_once(' ').unwrap_or((directive, ""));
    let (user, options) = options_of(options);
    if what == "fresh" {
        *test_node.borrow_mut() = new();
        let failures: String = input.lines().map(|line| failure_of(&test_node.borrow(), line)).collect();
        return if failures.is_empty() { "ready".to_owned() } else { failures };
    }
    let term = match syntax::to_wire(input) {
        Ok(term) => term,
        Err(error) => return format!("not a term: {error}"),
    };
    let test_node = test_node.borrow();
    match what {
        "run" => show(test_node.run(&user, term, options), false),
        "long" => show(test_node.run_slow_path(term, options), false),
        "way" => client(test_node.run(&user, term, options)),
        "batches" => show(test_node.run_slow_path(term, options), true),
        other => format!("there is no directive {other:?}"),
    }
}

fn failure_of(test_node: &TestNode, line: &str) -> String {
    let term = syntax::to_wire(line).expect(line);
    match test_node.run("admin", term, Map::new()) {
        Ok(_) => String::new(),
        Err(error) => format!("{line}: {error}\n"),
    }
}

fn options_of(text: &str) -> (String, Map<String, Value>) {
    let mut user = "admin".to_owned();
    let mut options = Map::new();
    for (name, value) in text.split_whitespace().filter_map(|option| option.split_once('=')) {
        if name == "user" {
            user = value.to_owned();
        } else {
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            options.insert(name.to_owned(), value);
        }
    }
    (user, options)
}

fn client(outcome: Result<Outcome, QueryError>) -> String {
    match outcome {
        Err(QueryError::Eval(error)) => format!("{} {}", error.backtrace(), error.message()),
        other => show(other, false),
    }
}

fn show(outcome: Result<Outcome, QueryError>, cuts: bool) -> String {
    let line = |items: &[Datum]| items.iter().map(Datum::to_json_string).collect::<Vec<_>>().join(", ");
    match outcome {
        Ok(Outcome::Atom(datum)) => datum.to_json_string(),
        Ok(Outcome::Stream(batches)) if cuts => {
            batches.iter().map(|items| format!("<{}>\n", line(items))).collect()
        }
        Ok(Outcome::Stream(batches)) => format!("<{}>", line(&batches.concat())),
        Err(QueryError::Compile(error)) => format!("compile error: {error}"),
        Err(QueryError::Eval(error)) => format!("{} {}", error.class().name(), error.message()),
    }
}
