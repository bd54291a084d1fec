//! Runs the cases in `testdata/`: input, four dashes, output.
//!
//! The first line of a case tells how the rest is processed:
//!
//! - `eval` evaluates a term; `eval array_limit=4` with options
//! - `query` parses a request in its wire form
//! - `print` prints the source of a term; `purity` prints its determinism
//!
//! Terms are written as in [`syntax`]. `UPDATE=1 cargo test` rewrites the outputs.

mod cases;
mod syntax;

use std::fmt::Write;

use datum::{Datum, Time};
use rekindle_reql::{self as reql, Cancel, CompileError, Env, EvalError, Scope, SeededRandom, Value, wire};

#[test]
fn every_case_gives_the_output_in_its_file() {
    cases::run(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata"), answer);
}

fn answer(directive: &str, input: &str) -> String {
    let (what, options) = directive.split_once(' ').unwrap_or((directive, ""));
    match what {
        "query" => query(input),
        "eval" => with_term(input, options, |term| evaluated(&term, options)),
        "print" => with_term(input, "", |term| reql::print::term(&term)),
        "purity" => with_term(input, "", |term| format!("{:?}", reql::purity::of_term(&term))),
        other => format!("there is no directive {other:?}"),
    }
}

fn query(input: &str) -> String {
    match wire::parse_query(input.as_bytes()) {
        Ok(query) => {
            let term = query.term.as_ref().map(reql::print::term).unwrap_or_default();
            let mut out = format!("{:?} {term}", query.kind).trim_end().to_owned();
            for (name, term) in &query.optargs {
                let _ = write!(out, "\n{name}: {}", reql::print::term(term));
            }
            out
        }
        Err(error) => compile_error(&error),
    }
}

/// Parses a term as the body of a query, so that an array limit is known at compile time.
fn with_term(input: &str, options: &str, then: impl FnOnce(reql::Term) -> String) -> String {
    let json = match syntax::to_wire(input) {
        Ok(json) => json,
        Err(error) => return format!("not a term: {error}"),
    };
    let limited = options.contains("array_limit");
    let optargs = if limited { r#"{"array_limit":1}"# } else { "{}" };
    match wire::parse_query(format!("[1,{json},{optargs}]").as_bytes()) {
        Ok(query) => then(query.term.expect("a START query has a term")),
        Err(error) => compile_error(&error),
    }
}

fn compile_error(error: &CompileError) -> String {
    match error {
        CompileError::Client { message } => format!("client error: {message}"),
        CompileError::Compile { message, backtrace } => format!("compile error at {backtrace}: {message}"),
    }
}

fn evaluated(term: &reql::Term, options: &str) -> String {
    let (cancel, random) = (Cancel::new(), SeededRandom::new(7));
    let mut array_limit = reql::ARRAY_LIMIT_DEFAULT;
    let mut globals: Vec<reql::GlobalOption> = Vec::new();
    for (name, value) in options.split_whitespace().filter_map(|option| option.split_once('=')) {
        let value = datum::json::parse(value.as_bytes()).expect("an option is JSON");
        match (name, &value) {
            ("array_limit", Datum::Number(limit)) => array_limit = *limit as usize,
            _ => globals.push((name.into(), Ok(value))),
        }
    }
    let env = Env {
        now: Time::new(1_700_000_000.0, 0),
        array_limit,
        cancel: &cancel,
        random: &random,
        globals: &globals,
        open: None,
    };
    match reql::eval_value(term, &Scope::empty(), &env).and_then(|value| shown(value, &env)) {
        Ok(shown) => shown,
        Err(error) => eval_error(&error),
    }
}

fn eval_error(error: &EvalError) -> String {
    format!("error {} at {}: {}", error.class().name(), error.backtrace(), error.message())
}

fn shown(value: Value, env: &Env<'_>) -> Result<String, EvalError> {
    match reql::collect_groups(value, env)? {
        Value::Grouping(_) => Ok("groups that were not gathered".to_owned()),
        Value::Datum(datum) => Ok(text(&datum)),
        Value::Func(closure) => Ok(reql::print::function(&closure.func)),
        Value::Stream(mut items) => {
            let mut out = Vec::new();
            while let Some(item) = items.next(env)? {
                out.push(text(&item));
                if out.len() == 20 && items.endless().is_some() {
                    out.push("…".to_owned());
                    break;
                }
            }
            Ok(format!("stream [{}]", out.join(",")))
        }
        Value::Grouped(grouped) => {
            let mut out = format!("{:?}", grouped.kind).to_lowercase();
            for (key, value) in &grouped.groups {
                let _ = write!(out, "\n{}: {}", text(key), text(value));
            }
            Ok(out)
        }
    }
}

fn text(datum: &Datum) -> String {
    match datum.not_json() {
        Some(kind) => kind.name().to_owned(),
        None => datum.to_json_string(),
    }
}
