//! Open terms are passed to [`OpenTerms`], and a query can be cancelled.

#[path = "data/syntax.rs"]
#[allow(dead_code, reason = "shared with the cases")]
mod syntax;

use std::sync::Mutex;

use datum::{Datum, Time};
use rekindle_reql::{
    self as reql, Call, Cancel, Env, ErrorClass, EvalError, Foreign, OpenTerms, OpenValue, Scope,
    SeededRandom, Term, wire,
};

fn parsed(text: &str) -> Term {
    let json = syntax::to_wire(text).expect("the notation of tests");
    wire::parse_term(json.to_string().as_bytes()).expect("a legal term")
}

/// Evaluates every open term to 7 and records the calls.
#[derive(Default)]
struct Sevens(Mutex<Vec<String>>);

impl OpenTerms for Sevens {
    fn eval_open(&self, call: &Call, scope: &Scope<'_>) -> Result<OpenValue, EvalError> {
        let bound = scope.get(reql::VarId(1)).map(Datum::to_json_string);
        let asked = format!("{} with {}", call.op.name(), bound.unwrap_or_default());
        self.0.lock().expect("the list").push(asked);
        Ok(OpenValue::Datum(Datum::Number(7.0)))
    }
}

fn eval(text: &str, world: Option<&Sevens>, cancel: &Cancel) -> Result<Datum, EvalError> {
    let random = SeededRandom::new(1);
    let env = Env {
        now: Time::new(0.0, 0),
        array_limit: 100_000,
        cancel,
        random: &random,
        globals: &[],
        open: world.map(|world| world as &dyn OpenTerms),
    };
    reql::eval(&parsed(text), &Scope::empty(), &env)
}

#[test]
fn a_function_with_an_open_term_reaches_the_world_with_its_variables() {
    let world = Sevens::default();
    let value = eval("[1, 2].map(x => r.table(\"t\").get(x))", Some(&world), &Cancel::new());
    assert_eq!(value.expect("a value"), Datum::Number(7.0));
    assert_eq!(*world.0.lock().expect("the list"), ["MAP with "]);
    let Term::Func(func) = parsed("x => r.table(\"t\").get(x)") else { panic!("a function") };
    assert!(!func.closed);
}

#[test]
fn literals_to_merge_survive_around_open_terms() {
    let world = Sevens::default();
    let value = eval(
        "{a: {b: 1}}.merge(x => {a: r.literal({c: 1}), d: r.table(\"t\").get(x)})",
        None,
        &Cancel::new(),
    );
    assert_eq!(value.expect_err("no world").class(), ErrorClass::Internal);
    let Term::Call(call) = parsed("{a: {b: 1}}.merge(x => {a: r.literal({c: 1}), d: r.table(\"t\").get(1)})")
    else {
        panic!("a call")
    };
    let Term::Func(func) = &call.args[1] else { panic!("a function") };
    let closure = reql::closure(func, &Scope::empty(), reql::ResultKind::Literals).expect("a closure");
    let (cancel, random) = (Cancel::new(), SeededRandom::new(1));
    let env = Env {
        now: Time::new(0.0, 0),
        array_limit: 10,
        cancel: &cancel,
        random: &random,
        globals: &[],
        open: Some(&world),
    };
    let layer = closure.call(&[Datum::Null], &env).expect("a layer");
    let merged = reql::op::merge::merge_datums(&parse("{\"a\":{\"b\":1}}"), &layer, &cancel).expect("merged");
    assert_eq!(merged.to_json_string(), "{\"a\":{\"c\":1},\"d\":7}");
}

fn parse(json: &str) -> Datum {
    datum::json::parse(json.as_bytes()).expect("JSON")
}

#[test]
fn a_cancelled_query_ends() {
    for endless in [
        "r.range().contains(-1)",
        "r.range().filter(x => x.lt(0)).nth(0)",
        "r.range().offsets_of(-1).nth(0)",
        "r.range().skip(1000000000000).nth(0)",
        "r.range().concat_map(x => []).is_empty()",
        "r.range().fold(0, (a, x) => a, emit: (a, x, b) => []).nth(0)",
        "r.range(1000000000000).map(x => x.add(1)).sum()",
        "r.range(1000000000000).group(x => 1).count().ungroup()",
        "r.range(1000000000000).sample(1)",
    ] {
        let cancel = Cancel::new();
        cancel.set();
        let error = eval(endless, None, &cancel).expect_err("stopped");
        assert_eq!(error.class(), ErrorClass::OpIndeterminate, "{endless}");
    }
}

#[test]
fn numbers_drawn_from_a_seed_repeat() {
    let draw = || eval("r.range(10).map(x => r.random()).coerce_to(\"array\")", None, &Cancel::new());
    assert_eq!(draw().expect("numbers"), draw().expect("numbers"));
}

/// Evaluates every open term to a function that sums.
struct Sums;

struct Sum;

impl OpenTerms for Sums {
    fn eval_open(&self, _: &Call, _: &Scope<'_>) -> Result<OpenValue, EvalError> {
        Ok(OpenValue::Func(std::sync::Arc::new(Sum)))
    }
}

impl Foreign for Sum {
    fn call(&self, values: &[Datum], _: &Env<'_>) -> Result<Datum, EvalError> {
        let number = |value: &Datum| if let Datum::Number(number) = value { *number } else { 0.0 };
        Ok(Datum::Number(values.iter().map(number).sum()))
    }

    fn source(&self) -> String {
        "the sum".to_owned()
    }
}

#[test]
fn a_foreign_function_is_called_like_any_other() {
    let random = SeededRandom::new(1);
    let cancel = Cancel::new();
    let env = Env {
        now: Time::new(0.0, 0),
        array_limit: 100_000,
        cancel: &cancel,
        random: &random,
        globals: &[],
        open: Some(&Sums),
    };
    let reql::Term::Call(call) = parsed("r.javascript(\"\")") else { panic!("a call") };
    let Ok(reql::OpenValue::Func(code)) = Sums.eval_open(&call, &Scope::empty()) else {
        panic!("a function")
    };
    let sum = reql::Closure::foreign(*call, code);
    assert_eq!(sum.as_foreign().map(|code| code.source()).as_deref(), Some("the sum"));
    for (values, expected) in [(vec![], 0.0), (vec![1.0], 1.0), (vec![1.0, 2.0, 4.0], 7.0)] {
        let values: Vec<Datum> = values.into_iter().map(Datum::Number).collect();
        assert_eq!(sum.call(&values, &env).ok(), Some(Datum::Number(expected)), "{values:?}");
    }
}
