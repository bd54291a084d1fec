//! Evaluates closed terms: every evaluation must end, with a value or an error.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datum::Time;
use io::sim::Chance;
use reql::stream::Items;
use reql::{Cancel, Env, EvalError, Op, Scope, SeededRandom, Term, Value, signature, wire};
use serde_json::{Value as Json, json};

use super::{Outcome, Target};

pub struct Evaluate;

/// When an evaluation is cancelled, and when it must have ended.
const CANCEL_AFTER: Duration = Duration::from_millis(100);
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// The most levels of a term.
const LEVELS_MAX: usize = 12;
/// The most items read of a stream.
const ITEMS_MAX: usize = 1_000;

impl Target for Evaluate {
    fn name(&self) -> &'static str {
        "evaluate"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut random = Chance::new(2024);
        let mut seed = |length: usize| (0..length).map(|_| random.draw() as u8).collect();
        (0..40).map(|n| seed(8 + n * 4)).collect()
    }

    fn dictionary(&self) -> &'static [&'static [u8]] {
        &[b"\0", b"\x01", b"\x02", b"\x03\x07", b"\x04", b"\x07", b"\xff"]
    }

    fn check(&self, input: &[u8]) -> Outcome {
        let mut source = Source { bytes: input.iter().copied(), bound: 0 };
        let text = source.term(0).to_string();
        let term = match wire::parse_term(text.as_bytes()) {
            Ok(term) => term,
            Err(error) => return Outcome::of_message(&error.to_string()),
        };
        let started = Instant::now();
        let answer = evaluated(&term);
        assert!(started.elapsed() < END_TIMEOUT, "{text} took {:?}", started.elapsed());
        let top = term.as_call().map(|call| call.op.name());
        match answer {
            Ok(kind) => Outcome::of((top, kind)),
            Err(error) => Outcome::of((top, super::stem(&error.message()).to_owned())),
        }
    }
}

/// The type of a term's result. Streams are read.
fn evaluated(term: &Term) -> Result<&'static str, EvalError> {
    let cancel = Arc::new(Cancel::new());
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let canceller = cancel.clone();
    let watchdog = std::thread::spawn(move || {
        if wait.recv_timeout(CANCEL_AFTER).is_err() {
            canceller.set();
        }
    });
    let random = SeededRandom::new(7);
    let env = Env {
        now: Time::new(1.5e9, 0),
        array_limit: 500,
        cancel: &cancel,
        random: &random,
        globals: &[],
        open: None,
    };
    let answer = reql::eval_value(term, &Scope::empty(), &env).and_then(|value| read(value, &env));
    // The thread may have ended already; in any case it ends now.
    let _ = done.send(());
    let _ = watchdog.join();
    answer
}

fn read(value: Value, env: &Env<'_>) -> Result<&'static str, EvalError> {
    let kind = value.type_name();
    match value {
        Value::Stream(mut items) => take(&mut *items, env)?,
        Value::Grouping(mut grouping) => take(&mut *grouping.items, env)?,
        _ => {}
    }
    Ok(kind)
}

fn take(items: &mut dyn Items, env: &Env<'_>) -> Result<(), EvalError> {
    for _ in 0..ITEMS_MAX {
        if items.next(env)?.is_none() {
            break;
        }
    }
    Ok(())
}

/// The input as a source of decisions.
struct Source<I> {
    bytes: I,
    bound: i64,
}

impl<I: Iterator<Item = u8>> Source<I> {
    fn byte(&mut self) -> usize {
        usize::from(self.bytes.next().unwrap_or(0))
    }

    fn term(&mut self, level: usize) -> Json {
        let what = self.byte();
        if level >= LEVELS_MAX || what < 64 {
            return self.leaf(what);
        }
        if what < 96 {
            return self.function(level);
        }
        let rows = signature::all();
        let row = &rows[(self.byte() * 3 + what) % rows.len()];
        if row.is_open() || matches!(row.op, Op::Datum | Op::Var | Op::Func | Op::MakeObj) {
            return self.leaf(what);
        }
        let most = row.arity.max.map_or(row.arity.min + 3, |max| max);
        let count = row.arity.min.max(1) + self.byte() % (most + 1 - row.arity.min.min(most)).max(1);
        let args: Vec<Json> = (0..count.min(most)).map(|_| self.term(level + 1)).collect();
        match row.optargs.is_empty() || !self.byte().is_multiple_of(4) {
            true => json!([row.id, args]),
            false => {
                let name = row.optargs[self.byte() % row.optargs.len()];
                let value = self.term(level + 1);
                json!([row.id, args, {name: value}])
            }
        }
    }

    fn function(&mut self, level: usize) -> Json {
        let count = (1 + self.byte() % 3) as i64;
        let names: Vec<i64> = (self.bound..self.bound + count).collect();
        self.bound += count;
        let body = self.term(level + 1);
        self.bound -= count;
        json!([69, [[2, names], body]])
    }

    fn leaf(&mut self, what: usize) -> Json {
        match what % 16 {
            0 => Json::Null,
            1 => json!(true),
            2 => json!(-1),
            3 => json!(0.5),
            4 => json!("abc"),
            5 => json!(""),
            6 => json!([2, [1, "b", null, [2, []]]]),
            7 => json!({"a": 1, "b": {"c": "x"}}),
            8 => json!({"$reql_type$": "TIME", "epoch_time": 1e9, "timezone": "-03:30"}),
            9 => json!({"$reql_type$": "BINARY", "data": "AAE="}),
            10 => json!({"$reql_type$": "GEOMETRY", "type": "Point", "coordinates": [2, [10, -20]]}),
            11 => json!(9_007_199_254_740_993_i64),
            12 => json!("a"),
            13 => json!([173, [self.byte()]]),
            _ if self.bound > 0 => json!([10, [self.byte() as i64 % self.bound]]),
            _ => json!(self.byte()),
        }
    }
}
