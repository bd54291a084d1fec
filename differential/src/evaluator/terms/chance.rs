//! Random values, pages and scripts, and information of the server.

use std::collections::BTreeMap;

use super::{datum, number, tables};
use crate::evaluator::args::{self, Args};
use crate::evaluator::into_datum;
use crate::evaluator::term_value::TermValue;
use crate::fault::{Fault, Out};
use crate::value::{MORE, Val};

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    match args.id {
        11 => script(&args.text(0)?),
        59 => names(args, ["rethinkdb", "test"]),
        62 => {
            if !args.is_empty() && !matches!(args.value(0)?, TermValue::Db) {
                return Err(Fault::logic("no database"));
            }
            names(args, args.evaluator.database.borrow().tables.keys().map(String::as_str))
        }
        77 => {
            let table = tables::whole(args, 0)?;
            let database = args.evaluator.database.borrow();
            // The only list of names without an array limit. Source: terms/sindex.cc.
            let names = database.tables[&table].indexes.keys().map(|name| Val::Text(name.clone()));
            datum(Val::Array(names.collect()))
        }
        79 => info(super::control::unread(args)?),
        103 => datum(Val::Time(args.evaluator.now(), 0)),
        138 => {
            tables::whole(args, 0)?;
            one("synced")
        }
        151 => random(args),
        153 => page(args, &args.text(0)?),
        _ => {
            tables::whole(args, 0)?;
            one("ready")
        }
    }
}

fn names<'a>(args: &Args<'_>, names: impl IntoIterator<Item = &'a str>) -> Out<TermValue> {
    let names = names.into_iter().map(|name| Val::Text(name.to_owned()));
    args.evaluator.array(names.collect()).and_then(datum)
}

fn one(what: &str) -> Out<TermValue> {
    datum(Val::Object(BTreeMap::from([(what.to_owned(), Val::Number(1.0))])))
}

/// `info`: the type, and plain values as text.
fn info(value: TermValue) -> Out<TermValue> {
    let kind = ("type".to_owned(), Val::Text(value.type_of().to_owned()));
    let mut members = BTreeMap::from([kind]);
    match &value {
        TermValue::Datum(value @ (Val::Bool(_) | Val::Number(_) | Val::Text(_))) => {
            members.insert("value".to_owned(), Val::Text(super::coerce::json_text(value)?));
        }
        TermValue::Datum(Val::Null | Val::MinVal | Val::MaxVal) | TermValue::Groups(_) => {}
        TermValue::Seq(seq) if seq.table.is_none() => {}
        // No rule determines ids of tables and the layout of values: only the type is known.
        _ => {
            members.insert(MORE.to_owned(), Val::Null);
        }
    }
    datum(Val::Object(members))
}

/// `random`: in [0, 1), below a bound, or between two.
fn random(args: &Args<'_>) -> Out<TermValue> {
    let part = (args.evaluator.chance() >> 11) as f64 / (1u64 << 53) as f64;
    let float = args.option("float")?.map(into_bool).transpose()?;
    let is_float = float.unwrap_or(args.is_empty());
    // A bound is checked to be a whole number before the next is evaluated. Source: terms/random.cc.
    let bound = |i| args.number(i).and_then(|at| if is_float { Ok(at) } else { args::whole(at).map(|_| at) });
    let bounds: Vec<f64> = (0..args.len()).map(bound).collect::<Out<_>>()?;
    let (from, to) = match bounds.as_slice() {
        [] if !is_float => return Err(Fault::logic("no bounds")),
        [] => (0.0, 1.0),
        [to] => (0.0, *to),
        [from, to] => (*from, *to),
        _ => return Err(Fault::unspecified("three bounds")),
    };
    if is_float {
        return number(from + (to - from) * part);
    }
    let (from, to) = (args::whole(from)?, args::whole(to)?);
    if from >= to {
        return Err(Fault::logic("an empty range"));
    }
    number((from as f64 + (to - from) as f64 * part).floor())
}

fn into_bool(value: Val) -> Out<bool> {
    match value {
        Val::Bool(value) => Ok(value),
        other => Err(Fault::expected("BOOL", &other)),
    }
}

/// The pages of the node in memory.
fn page(args: &Args<'_>, url: &str) -> Out<TermValue> {
    match url {
        // The page is an array already; only the parser of a text has the limit.
        "a/array" if args.evaluator.exceeds(3) => Err(Fault::unspecified("a page over the limit")),
        "a/array" => datum(Val::Array([1.0, 2.0, 3.0].map(Val::Number).to_vec())),
        "a/missing" | "a/dead" => Err(Fault::missing("no page")),
        "page" => into_datum(TermValue::Datum(Val::Text(url.to_owned()))).and_then(datum),
        _ => Err(Fault::unspecified("another page")),
    }
}

/// The scripts of the node in memory.
fn script(source: &str) -> Out<TermValue> {
    match (source, source.parse::<f64>()) {
        (_, Ok(n)) => number(n),
        ("undefined" | "hang", _) => Err(Fault::logic("a script that fails")),
        _ => Err(Fault::unspecified("another script")),
    }
}
