//! Terms and values with tens of thousands of levels are parsed, evaluated, printed, copied and dropped on a small
//! stack. No input makes the parser panic.

use std::time::{Duration, Instant};

use datum::{Datum, Time};
use rekindle_reql::{self as reql, Cancel, Env, EvalError, Scope, SeededRandom, Term, wire};

const DEPTH: usize = 20_000;

/// Runs `test` on a thread with less stack than any thread of the server has.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(test);
    thread.expect("a thread").join().expect("no panic");
}

fn nested(before: &str, innermost: &str, after: &str) -> Vec<u8> {
    [before.repeat(DEPTH), innermost.to_owned(), after.repeat(DEPTH)].concat().into_bytes()
}

fn written(term: &Term) -> Vec<u8> {
    wire::write_term(term, usize::MAX).expect("without a limit")
}

fn evaluated(term: &Term) -> Result<Datum, EvalError> {
    let (cancel, random) = (Cancel::new(), SeededRandom::new(1));
    let env = Env {
        now: Time::new(0.0, 0),
        array_limit: 1000,
        cancel: &cancel,
        random: &random,
        globals: &[],
        open: None,
    };
    reql::eval(term, &Scope::empty(), &env)
}

/// Applies every operation on terms.
fn all_operations(bytes: &[u8]) -> Result<Datum, EvalError> {
    let term = wire::parse_term(bytes).expect("a legal term");
    let copy = term.clone();
    drop(term);
    assert!(!reql::print::term(&copy).is_empty());
    assert_eq!(reql::purity::of_term(&copy), reql::purity::Determinism::Always);
    let again = wire::parse_term(&written(&copy)).expect("what was written is legal");
    assert_eq!(reql::print::term(&again), reql::print::term(&copy));
    evaluated(&copy)
}

#[test]
fn deep_arrays_that_are_known() {
    on_a_small_stack(|| {
        let value = all_operations(&nested("[2,[", "[2,[]]", "]]")).expect("a value");
        assert_eq!(value.to_json_string().len(), 2 * DEPTH + 2);
        assert_eq!(value.clone(), value);
    });
}

#[test]
fn deep_arrays_that_are_made_when_evaluated() {
    on_a_small_stack(|| {
        let value = all_operations(&nested("[2,[", "[24,[1,1]]", "]]")).expect("a value");
        assert_eq!(value.to_json_string().len(), 2 * DEPTH + 1);
    });
}

#[test]
fn deep_objects_calls_and_functions() {
    on_a_small_stack(|| {
        let object = all_operations(&nested("{\"a\":", "[24,[1,1]]", "}")).expect("a value");
        assert_eq!(object.to_json_string().len(), 6 * DEPTH + 1);
        let sum = all_operations(&nested("[24,[1,", "1", "]]")).expect("a value");
        assert_eq!(sum, Datum::Number(DEPTH as f64 + 1.0));
        let error = all_operations(&nested("[24,[1,", "\"x\"", "]]")).expect_err("not a number");
        assert_eq!(error.backtrace().frames().len(), DEPTH - 1);
        let called = all_operations(&nested("[64,[[69,[[2,[1]],", "[10,[1]]", "]],1]]"));
        assert_eq!(called.expect("a value"), Datum::Number(1.0));
        let functions = wire::parse_term(&nested("[69,[[2,[1]],", "[10,[1]]", "]]"));
        drop(functions.expect("a legal term").clone());
        let pseudo = nested("{\"a\":", "{\"$reql_type$\":\"TIME\"}", "}");
        assert!(all_operations(&pseudo).is_err());
    });
}

#[test]
fn a_chain_is_printed_completely_and_deep_nesting_is_cut() {
    on_a_small_stack(|| {
        let chain = wire::parse_term(&nested("[141,[", "\"x\"", "]]")).expect("a legal term");
        assert_eq!(reql::print::term(&chain).matches(".upcase()").count(), DEPTH);
        let sum = wire::parse_term(&nested("[24,[1,", "1", "]]")).expect("a legal term");
        assert_eq!(reql::print::term(&sum).matches("r.add(").count(), 15);
    });
}

/// The text of a level is not scanned again for every level above it, which would take minutes.
#[test]
fn objects_in_deep_texts_are_merged_matched_and_plucked_in_one_walk() {
    on_a_small_stack(|| {
        let (depth, begun) = (100_000, Instant::now());
        let text = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        let json = format!("[98,[{}]]", Datum::from(text.as_str()).to_json_string());
        let answer = |term: &str| {
            let term = wire::parse_term(term.replace("J", &json).as_bytes()).expect("a legal term");
            evaluated(&term).expect("a value").to_json_string()
        };
        let path = format!("{}true{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        let path = format!("[98,[{}]]", Datum::from(path.as_str()).to_json_string());
        assert_eq!(answer("[35,[J,J]]"), text);
        assert_eq!(answer("[43,[[39,[[2,[J]],J]]]]"), "1");
        assert_eq!(answer(&format!("[33,[J,{path}]]")), text);
        assert_eq!(answer(&format!("[32,[J,{path}]]")), "true");
        assert_eq!(answer(&format!("[34,[J,{path}]]")).len(), text.len() - "\"a\":1".len());
        assert!(begun.elapsed() < Duration::from_secs(60), "it took {:?}", begun.elapsed());
    });
}

#[test]
fn queries_over_the_depth_limit_are_refused() {
    on_a_small_stack(|| {
        for before in ["[", "[2,[", "{\"a\":"] {
            let bytes = before.repeat(1_000_000);
            assert!(wire::parse_query(bytes.as_bytes()).is_err());
        }
    });
}

#[test]
fn no_bytes_make_reading_panic() {
    let seed = 0x9e37_79b9_97f4_a7c1_u64;
    println!("seed {seed:#x}");
    let mut state = seed;
    let mut below = move |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound as u64).unwrap_or(0)
    };
    let seeds: [&[u8]; 6] = [
        br#"[1,[39,[[15,["t"]],[69,[[2,[1]],[17,[[170,[[10,[1]],"a"]],1]]]]],{"default":false}],{"db":[14,["x"]]}]"#,
        br#"[1,[56,[[15,["t"]],[2,[{"a":{"b":[2,[1,2.5e3,null]]}},{"$reql_type$":"BINARY","data":"AAAA"}]]]]]"#,
        br#"[1,[92,[[31,[{},"b"]],[69,[[2,[7]],[24,[[10,[7]],"\u00e9\n"]]]]]]]"#,
        br#"[1,[145,[[38,[[173,[5]],[43,[[149,[[51,[[13],"STRING"]],"."]]]]]]]]]"#,
        br#"[1,[150,[[43,[[144,[[2,[1,2]],[69,[[2,[1]],[28,[[10,[1]],2]]]]]]]]]]]"#,
        br#"[1,[64,[[69,[[2,[1,2]],[35,[[10,[1]],{"k":[137,[[10,[2]]]]}]]]],{"k":1},2]]]"#,
    ];
    let (cancel, random) = (Cancel::new(), SeededRandom::new(1));
    let env = Env {
        now: Time::new(0.0, 0),
        array_limit: 50,
        cancel: &cancel,
        random: &random,
        globals: &[],
        open: None,
    };
    for round in 0..60_000 {
        let mut bytes = seeds[round % seeds.len()].to_vec();
        for _ in 0..below(4) {
            let at = below(bytes.len());
            match below(4) {
                0 => bytes[at] = below(256) as u8,
                1 => bytes[at] = b"[]{},:\"0123456789"[below(17)],
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b'0' + below(10) as u8),
            }
        }
        if let Ok(query) = wire::parse_query(&bytes) {
            let Some(term) = query.term else { continue };
            let _ = reql::print::term(&term);
            let _ = reql::purity::of_term(&term);
            let _ = wire::parse_term(&written(&term)).expect("what was written is legal");
            let _ = reql::eval(&term, &Scope::empty(), &env);
        }
    }
}
