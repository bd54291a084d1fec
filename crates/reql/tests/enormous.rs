//! Values with shared parts are small in memory but enormous when visited part by part. Terms that process them end
//! when the query is cancelled or runs out of memory.

#[path = "data/syntax.rs"]
#[allow(dead_code, reason = "shared with the cases")]
mod syntax;

use std::sync::Arc;

use datum::{Datum, Object, Text, Time, cancel};
use io::memory::{Account, Budget, Metered};
use rekindle_reql::op::merge::{merge_datums, merge_row};
use rekindle_reql::op::pathspec::PathSpec;
use rekindle_reql::{self as reql, Cancel, Env, ErrorClass, EvalError, Scope, SeededRandom, Term, wire};

#[global_allocator]
static ALLOCATOR: Metered<std::alloc::System> = Metered(std::alloc::System);

const MB: u64 = 1 << 20;

/// Terms whose results for `x`, `y` and the path `p` exceed all memory.
const TERMS: [&str; 5] = [
    "x.merge(y).keys()",
    "[x].concat_map(v => [v.merge(y)]).count()",
    "x.pluck(p).keys()",
    "x.without(p).keys()",
    "x.has_fields(p)",
];

/// Terms that walk through all parts.
const WALKS: [&str; 3] =
    ["[x].with_fields(p).count()", "[x].pluck(p).count()", "[x].filter(x.merge({z: 1})).count()"];

/// Applies `term` to two objects and a path with two to the power of 45 parts each.
fn with_enormous(term: &str) -> String {
    let of = |leaf: &str| format!("r.range(45).fold({leaf}, (a, i) => ({{a: a, b: a}}))");
    format!("r.do({}, {}, {}, (x, y, p) => {term})", of("{k: 0}"), of("{k: 1}"), of("true"))
}

fn evaluated(text: &str, cancel: &Cancel) -> Result<Datum, EvalError> {
    let json = syntax::to_wire(text).expect("the notation of tests");
    let term = wire::parse_term(json.to_string().as_bytes()).expect("a legal term");
    evaluated_term(&term, cancel)
}

fn evaluated_term(term: &Term, cancel: &Cancel) -> Result<Datum, EvalError> {
    let random = SeededRandom::new(1);
    let env = Env {
        now: Time::new(0.0, 0),
        array_limit: 100_000,
        cancel,
        random: &random,
        globals: &[],
        open: None,
    };
    reql::eval(term, &Scope::empty(), &env)
}

#[test]
fn results_are_bounded_by_memory() {
    for term in TERMS {
        let account = Account::new(Budget::new(64 * MB));
        let _work = account.enter();
        let error = evaluated(&with_enormous(term), &Cancel::new()).expect_err(term);
        assert_eq!(error.class(), ErrorClass::ResourceLimit, "{term}: {}", error.message());
    }
}

#[test]
fn evaluation_ends_when_the_query_is_cancelled() {
    for term in TERMS.into_iter().chain(WALKS) {
        let cancel = Arc::new(Cancel::new());
        let error = std::thread::scope(|scope| {
            let query = scope.spawn(|| {
                let _cancel_scope = cancel::scope(Some(cancel.clone()));
                evaluated(&with_enormous(term), &cancel).err()
            });
            cancel.set();
            query.join().expect("no panic").expect("stopped")
        });
        assert_eq!(error.class(), ErrorClass::OpIndeterminate, "{term}");
    }
}

/// Two to the power of `levels` leaves.
fn wide(levels: usize, leaf: Datum) -> Object {
    let both = |part: &Datum| ["a", "b"].map(|key| (Text::from_static(key), part.clone())).into_iter();
    (1..levels).fold(both(&leaf).collect(), |part: Object, _| both(&Datum::Object(part)).collect())
}

#[test]
fn walks_check_for_cancellation() {
    let stopped = Cancel::new();
    stopped.set();
    let (x, y) = (wide(45, Datum::from(0)), wide(45, Datum::from(1)));
    assert!(merge_datums(&Datum::Object(x.clone()), &Datum::Object(y), &stopped).is_err());
    let endless = Datum::Object(wide(45, Datum::Bool(true)));
    assert!(PathSpec::of(&endless, &stopped).is_err());
    let path = Datum::Object(wide(8, Datum::Bool(true)));
    let path = PathSpec::of(&path, &Cancel::new()).expect("a path");
    assert!(path.pluck(&x, &stopped).is_err());
    assert!(path.without(&x, &stopped).is_err());
    assert!(path.is_in(&x, &stopped).is_err());
}

#[test]
fn merging_a_row_respects_the_memory_budget_of_the_thread() {
    let account = Account::new(Budget::new(64 * MB));
    let _work = account.enter();
    let (x, y) = (wide(45, Datum::from(0)), wide(45, Datum::from(1)));
    let error = merge_row(&Datum::Object(x), &Datum::Object(y)).expect_err("too much");
    assert_eq!(error.class(), ErrorClass::ResourceLimit);
}

/// The result of a cancelled walk is not returned.
#[test]
fn values_too_deep_for_any_stack_fail() {
    // Each level is compared with the next one, so that no two compared values are the same.
    let inner = (0..12_000_000).fold(Datum::Null, |inner, _| Datum::from(vec![inner]));
    let outer = Datum::from(vec![inner.clone()]);
    let cancel = Arc::new(Cancel::new());
    let _cancel_scope = cancel::scope(Some(cancel.clone()));
    let json = syntax::to_wire("r.range(0).count().eq(1)").expect("the notation of tests");
    let term = wire::parse_term(json.to_string().as_bytes()).expect("a legal term");
    let Term::Call(mut call) = term else { panic!("a call") };
    call.args = vec![Term::Datum(outer), Term::Datum(inner)];
    let error = evaluated_term(&Term::Call(call), &cancel).expect_err("too deep");
    assert_eq!(error.class(), ErrorClass::ResourceLimit, "{}", error.message());
}

/// Each bracket and each item needs more memory than its text.
#[test]
fn json_text_is_read_as_far_as_there_is_memory() {
    for text in ["[", "[1,", "{\"a\":", "[{},", "[[],"] {
        let quoted = Datum::from(text).to_json_string();
        let account = Account::new(Budget::new(48 * MB));
        let _work = account.enter();
        let doubled = format!("r.json(r.range(21).fold({quoted}, (a, i) => a.add(a)))");
        let error = evaluated(&doubled, &Cancel::new()).expect_err(text);
        assert_eq!(error.class(), ErrorClass::ResourceLimit, "{text}: {}", error.message());
    }
}
