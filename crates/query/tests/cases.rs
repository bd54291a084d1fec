//! Runs the cases in `testdata/`: input, four dashes, output.
//!
//! The first line of a case says what is done with the rest:
//!
//! - `fresh` begins with a new node and runs the terms, one a line, without looking at answers
//! - `run` answers a term; `run array_limit=4 user=bob` with options and another user
//! - `long` answers it without the fast path
//! - `way` shows an error with the way from the root of the term to what failed
//! - `batches` shows how a stream was cut
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
use support::{House, Outcome};

#[test]
fn every_case_says_what_its_file_says() {
    run_all(House::new);
}

#[test]
fn explanations_say_what_a_node_with_all_rows_does() {
    let house = RefCell::new(House::new());
    cases::run(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/near"), |directive, input| {
        answer(&house, House::new, directive, input)
    });
}

#[test]
fn explanations_say_the_same_of_rows_that_are_elsewhere() {
    let house = RefCell::new(House::far(None));
    cases::run(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/far"), |directive, input| {
        answer(&house, || House::far(None), directive, input)
    });
}

/// The seed of what is lost.
const LOSSES: u64 = 4711;

#[test]
fn every_case_says_the_same_from_afar() {
    run_all(|| House::far(None));
}

#[test]
fn every_case_says_the_same_over_links_that_lose_questions() {
    println!("SEED={LOSSES}");
    run_all(|| House::far(Some(LOSSES)));
}

fn run_all(new: fn() -> House) {
    let house = RefCell::new(new());
    cases::run(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata"), |directive, input| {
        answer(&house, new, directive, input)
    });
}

fn answer(house: &RefCell<House>, new: fn() -> House, directive: &str, input: &str) -> String {
    let (what, options) = directive.split_once(' ').unwrap_or((directive, ""));
    let (user, options) = options_of(options);
    if what == "fresh" {
        *house.borrow_mut() = new();
        let failures: String = input.lines().map(|line| failure_of(&house.borrow(), line)).collect();
        return if failures.is_empty() { "ready".to_owned() } else { failures };
    }
    let term = match syntax::to_wire(input) {
        Ok(term) => term,
        Err(error) => return format!("not a term: {error}"),
    };
    let house = house.borrow();
    match what {
        "run" => show(house.run(&user, term, options), false),
        "long" => show(house.run_long(term, options), false),
        "way" => way(house.run(&user, term, options)),
        "batches" => show(house.run_long(term, options), true),
        other => format!("there is no directive {other:?}"),
    }
}

fn failure_of(house: &House, line: &str) -> String {
    let term = syntax::to_wire(line).expect(line);
    match house.run("admin", term, Map::new()) {
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

fn way(outcome: Result<Outcome, QueryError>) -> String {
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
