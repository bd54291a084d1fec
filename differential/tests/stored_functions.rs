//! Random functions, stored by a query, are the same after they went through the binary form of RethinkDB.

use anyhow::{Context, bail};
use datum::{Datum, Text, Time};
use rekindle_differential::Generator;
use rekindle_differential::generate::Kind;
use reql::purity::{self, Determinism};
use reql::{
    ARRAY_LIMIT_DEFAULT, Cancel, Env, EvalError, IndexFlags, ResultKind, Scope, SeededRandom, StoredFunc,
    Term, VarId, wire,
};
use serde_json::{Value as Json, json};

/// The seed of the test.
const SEED: u64 = 45;
const FUNCTIONS: u64 = 10_000;

const KINDS: [Kind; 5] = [Kind::Number, Kind::Text, Kind::Array, Kind::Object, Kind::Time];

#[test]
fn random_functions_are_read_as_they_were_written() -> anyhow::Result<()> {
    let mut stored_binaries = 0;
    for n in 0..FUNCTIONS {
        let mut generator = Generator::new(SEED.wrapping_mul(FUNCTIONS).wrapping_add(n));
        let function =
            random_function(&mut generator).with_context(|| format!("seed {SEED}, function {n}"))?;
        let context = || format!("seed {SEED}, function {n}: {}", function.query);
        stored_binaries += u64::from(check(&function, &mut generator).with_context(context)?);
    }
    // Most have numbers of their query.
    assert!(stored_binaries > FUNCTIONS / 2, "{stored_binaries}");
    Ok(())
}

/// A query that creates an index, inside a function of some values.
struct RandomFunction {
    query: Text,
    captured: Vec<(VarId, Datum)>,
}

fn random_function(generator: &mut Generator) -> anyhow::Result<RandomFunction> {
    let count = generator.chance.below(3);
    let kinds: Vec<Kind> = (0..count).map(|_| *generator.chance.pick(&KINDS)).collect();
    let names: Vec<i64> = (1..).take(count).collect();
    let values: Vec<Json> = kinds.iter().map(|kind| generator.constant(*kind)).collect();
    let around: Vec<(i64, Kind)> = names.iter().copied().zip(kinds).collect();
    let sent = generator.row_function(&around);
    let create = json!([75, [[15, ["t"]], "i", sent]]);
    let term = match count {
        0 => create,
        _ => {
            let function = json!([69, [[2, names], create]]);
            json!([64, std::iter::once(&function).chain(&values).collect::<Vec<_>>()])
        }
    };
    let captured = names.into_iter().zip(values).map(|(name, value)| Ok((VarId(name), value_of(&value)?)));
    let captured = captured.collect::<anyhow::Result<_>>()?;
    Ok(RandomFunction { query: json!([1, term, {}]).to_string().into(), captured })
}

fn value_of(constant: &Json) -> anyhow::Result<Datum> {
    let term = wire::parse_term(constant.to_string().as_bytes())?;
    Ok(reql::eval(&term, &Scope::empty(), &env(&Cancel::never(), &SeededRandom::new(1)))?)
}

fn env<'a>(cancel: &'a Cancel, random: &'a SeededRandom) -> Env<'a> {
    let now = Time::new(0.0, 0);
    Env { now, array_limit: ARRAY_LIMIT_DEFAULT, cancel, random, globals: &[], open: None }
}

/// Whether the function has a binary that does not follow from its text.
fn check(function: &RandomFunction, generator: &mut Generator) -> anyhow::Result<bool> {
    let term = wire::parse_query(function.query.as_bytes())?.term.context("a term")?;
    let func = index_function(&term).context("a function")?;
    let (ids, values): (Vec<VarId>, Vec<Datum>) = function.captured.iter().cloned().unzip();
    let closure = reql::closure(func, &Scope::of_call(&ids, &values, &[]), ResultKind::Datum)?;
    let stored = StoredFunc::of_closure(&closure, Some(&function.query))?;
    let flags = IndexFlags { multi: generator.chance.once_in(2), geo: generator.chance.once_in(2) };
    let binary = stored.index_binary(flags);
    let read = StoredFunc::of_index_binary(&binary)?;
    if (&read.function, read.flags) != (&stored, flags) || read.function.index_binary(flags) != binary {
        bail!("it was read as {:?}", read.function);
    }
    if StoredFunc::of_hook_binary(&stored.hook_binary())? != stored {
        bail!("it was read as another hook");
    }
    let row = value_of(&generator.row_constant())?;
    if closure.func.closed && purity::of_func(&closure.func) == Determinism::Always {
        let again = reql::closure(read.function.func(), &Scope::empty(), ResultKind::Datum)?;
        let (cancel, random) = (Cancel::never(), SeededRandom::new(1));
        let called = |closure: &reql::Closure| {
            outcome(closure.call(std::slice::from_ref(&row), &env(&cancel, &random)))
        };
        if called(&closure) != called(&again) {
            bail!("of {row:?} it is {}, and {} once it was read", called(&closure), called(&again));
        }
    }
    Ok(stored.stored_binary().is_some())
}

fn index_function(term: &Term) -> Option<&std::sync::Arc<reql::FuncTerm>> {
    let call = term.as_call()?;
    match call.args.last()? {
        Term::Func(func) if call.op == reql::Op::IndexCreate => Some(func),
        _ => match call.args.first()? {
            Term::Func(outer) => index_function(&outer.body),
            _ => None,
        },
    }
}

fn outcome(result: Result<Datum, EvalError>) -> String {
    result.map_or_else(|error| error.message(), |datum| datum.to_json_string())
}
