//! The verdict of the reference on a query: a result, an error class, or none.

use serde_json::{Value as Json, json};

use crate::database::Database;
use crate::evaluator::args;
use crate::evaluator::term_value::{Seq, TermValue};
use crate::evaluator::terms;
use crate::evaluator::{ARRAY_LIMIT_DEFAULT, Evaluator, Scope, into_datum};
use crate::fault::{Class, Fault, Out};
use crate::generate::Query;
use crate::value::{MORE, Val};

/// The number of orders in which a query is evaluated if it depends on one.
const ORDERS: u64 = 6;
/// The number of orders in which a query is evaluated before a difference counts.
pub const ORDERS_OF_DOUBT: u64 = 300;

/// A result as a client receives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// One datum.
    Atom(Val),
    /// A stream, read to its end.
    Stream(Vec<Val>),
    /// An error of this class.
    Fault(Class),
}

/// The result of every correct server.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The result.
    pub answer: Answer,
    /// Whether the items of the stream may come in any order.
    pub any_order: bool,
    /// Whether only the kind of the result is known, because the value is random or depends on the clock.
    pub kind_only: bool,
    /// The tables afterwards.
    pub database: Database,
}

/// The verdict on `query`, or the reason why there is none: all orders of unordered items must lead to the same result.
pub fn verdict(query: &Query, database: &Database) -> Result<Verdict, String> {
    verdict_of(query, database, ORDERS)
}

/// The verdict after this number of orders.
pub fn verdict_of(query: &Query, database: &Database, orders: u64) -> Result<Verdict, String> {
    let array_limit = match array_limit(query.array_limit.as_ref()) {
        Ok(limit) => limit,
        Err(Fault { class, .. }) => {
            let (answer, database) = (Answer::Fault(class), database.clone());
            return Ok(Verdict { answer, any_order: false, kind_only: false, database });
        }
    };
    let (mut first, by_chance) = (None::<Verdict>, names_chance(&query.term));
    for order in 0..orders {
        let evaluator = Evaluator::new(database.clone(), order, array_limit);
        let answer = match evaluator
            .eval(&query.term, &Scope::default(), false)
            .and_then(|value| shown(&evaluator, value))
        {
            Ok(answer) => answer,
            Err(Fault { class: Class::Unspecified, why }) => return Err(why),
            Err(Fault { class: Class::Empty, .. }) => Answer::Fault(Class::Logic),
            Err(fault) => Answer::Fault(fault.class),
        };
        let asked = evaluator.depends_on_order();
        let database = evaluator.database.into_inner();
        let Some(known) = &mut first else {
            let verdict = Verdict { answer, any_order: false, kind_only: false, database };
            if !asked {
                return Ok(verdict);
            }
            first = Some(verdict);
            continue;
        };
        if known.database.tables.iter().any(|(name, table)| database.tables[name].rows != table.rows) {
            return Err("rows depend on an order".to_owned());
        }
        if !same(&known.answer, &answer, false) {
            if same(&known.answer, &answer, true) {
                known.any_order = true;
            } else if by_chance && same_kind(&known.answer, &answer) {
                known.kind_only = true;
            } else {
                return Err("depends on an order".to_owned());
            }
        }
    }
    first.ok_or_else(|| "no order".to_owned())
}

/// The most items an array may have: a whole number, at least one.
fn array_limit(asked: Option<&Json>) -> Out<usize> {
    let Some(asked) = asked else { return Ok(ARRAY_LIMIT_DEFAULT) };
    let limit = args::whole(args::number(&Val::of_json(asked))?)?;
    usize::try_from(limit).ok().filter(|limit| *limit > 0).ok_or_else(|| Fault::logic("an illegal limit"))
}

/// Whether the result agrees with the verdict.
#[must_use]
pub fn agrees(verdict: &Verdict, answer: &Answer) -> bool {
    match verdict.kind_only {
        true => same_kind(&verdict.answer, answer),
        false => same(&verdict.answer, answer, verdict.any_order),
    }
}

/// Whether `now`, `random`, `uuid` or `sample` is anywhere in a query.
fn names_chance(query: &Json) -> bool {
    names(query, &[81, 103, 151, 169])
}

/// Whether `http` or `js` is anywhere in a query.
#[must_use]
pub fn uses_outside(query: &Json) -> bool {
    names(query, &[11, 153])
}

fn names(query: &Json, terms: &[u64]) -> bool {
    match query {
        Json::Array(parts) => {
            let id = parts.first().and_then(Json::as_u64);
            id.is_some_and(|id| terms.contains(&id)) || parts.iter().any(|part| names(part, terms))
        }
        Json::Object(members) => members.values().any(|member| names(member, terms)),
        _ => false,
    }
}

/// A value as a client receives it.
fn shown(evaluator: &Evaluator, value: TermValue) -> Out<Answer> {
    let answer = match value {
        table @ TermValue::Table(_) => {
            Answer::Stream(terms::collected(terms::of_value(evaluator, table)?.items)?)
        }
        TermValue::Seq(Seq { infinite: true, .. }) => return Err(Fault::unspecified("endless")),
        TermValue::Seq(Seq { eager, items, .. }) => {
            // A bound that is sent to the client before a later item fails is an error, too.
            let failed = items.iter().position(Result::is_err);
            let bound = items.iter().take(failed.unwrap_or(0)).flatten().any(Val::has_bound);
            let logic = |item: &Out<Val>| item.as_ref().is_err_and(|fault| fault.class == Class::Logic);
            if bound && !items.iter().any(logic) {
                return Err(Fault::unspecified("which of two mistakes is met first"));
            }
            let items = terms::collected(items)?;
            if eager { Answer::Atom(Val::Array(items)) } else { Answer::Stream(items) }
        }
        TermValue::Groups(groups) => {
            let pairs =
                terms::ready(evaluator, groups)?.into_iter().map(|(key, value)| Val::Array(vec![key, value]));
            Answer::Atom(grouped(pairs.collect()))
        }
        TermValue::Func(_) | TermValue::Db => Answer::Fault(Class::Logic),
        other => Answer::Atom(into_datum(other)?),
    };
    let bounded = match &answer {
        Answer::Atom(value) => value.has_bound(),
        Answer::Stream(items) => items.iter().any(Val::has_bound),
        Answer::Fault(_) => false,
    };
    Ok(if bounded { Answer::Fault(Class::Logic) } else { answer })
}

fn grouped(pairs: Vec<Val>) -> Val {
    let name = Val::Text("GROUPED_DATA".to_owned());
    Val::Object([("$reql_type$".to_owned(), name), ("data".to_owned(), Val::Array(pairs))].into())
}

/// Whether two results are equal; streams possibly in another order.
#[must_use]
pub fn same(a: &Answer, b: &Answer, any_order: bool) -> bool {
    match (a, b) {
        (Answer::Atom(a), Answer::Atom(b)) => alike(a, b),
        (Answer::Fault(a), Answer::Fault(b)) => a == b,
        (Answer::Stream(a), Answer::Stream(b)) if any_order => {
            // By text, because equal values may print differently.
            let text = |items: &[Val]| {
                let mut shown: Vec<(String, Val)> =
                    items.iter().map(|item| (item.to_json().to_string(), item.clone())).collect();
                shown.sort_by(|(a, _), (b, _)| a.cmp(b));
                shown
            };
            let (a, b) = (text(a), text(b));
            a.len() == b.len() && a.iter().zip(&b).all(|((_, a), (_, b))| alike(a, b))
        }
        (Answer::Stream(a), Answer::Stream(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        _ => false,
    }
}

/// Whether two values are equal up to the last digits of numbers and the texts of errors.
fn alike(a: &Val, b: &Val) -> bool {
    match (a, b) {
        (Val::Number(a), Val::Number(b)) => {
            (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-300) || a == b
        }
        (Val::Array(a), Val::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
        (Val::Object(a), Val::Object(b)) if a.contains_key(MORE) => {
            a.iter().all(|(name, a)| name == MORE || b.get(name).is_some_and(|b| alike(a, b)))
        }
        (Val::Shape(a, at), Val::Shape(b, other)) => a == b && near(at, other),
        (Val::Object(a), Val::Object(b)) => {
            let member = |((k, a), (l, b)): ((&String, &Val), (&String, &Val))| {
                k == l && (k == "first_error" || k == "error" || alike(a, b))
            };
            a.len() == b.len() && a.iter().zip(b).all(member)
        }
        (Val::Time(a, za), Val::Time(b, zb)) => (a - b).abs() < 0.0005 && za == zb,
        _ => a.type_name() == b.type_name() && a == b,
    }
}

/// Whether coordinates are equal up to a hundredth of a second of arc.
fn near(a: &Val, b: &Val) -> bool {
    match (a, b) {
        (Val::Array(a), Val::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| near(a, b)),
        (Val::Number(a), Val::Number(b)) => (a - b).abs() < 1e-6,
        _ => false,
    }
}

/// Whether two results are of one kind: values of one type, streams, or errors of one class.
#[must_use]
pub fn same_kind(a: &Answer, b: &Answer) -> bool {
    match (a, b) {
        (Answer::Atom(a), Answer::Atom(b)) => a.type_name() == b.type_name(),
        (Answer::Stream(a), Answer::Stream(b)) => a.len() == b.len(),
        (Answer::Fault(a), Answer::Fault(b)) => a == b,
        _ => false,
    }
}

/// A result as text for people.
#[must_use]
pub fn text(answer: &Answer) -> String {
    match answer {
        Answer::Atom(value) => value.to_json().to_string(),
        Answer::Stream(items) => format!("<{}>", json!(items.iter().map(Val::to_json).collect::<Vec<_>>())),
        Answer::Fault(class) => format!("{class:?}"),
    }
}
