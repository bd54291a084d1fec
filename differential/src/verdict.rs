//! What the reference says of a query: an answer, an error class, or nothing.

use serde_json::{Value as Json, json};

use crate::fault::{Class, Fault, Out};
use crate::machine::{Machine, Scope, into_datum};
use crate::terms;
use crate::thing::{Groups, Seq, Thing};
use crate::value::Val;
use crate::world::World;

/// The orders every query is evaluated in.
const ORDERS: u64 = 6;

/// An answer as a client sees it.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// One datum.
    Atom(Val),
    /// A stream, read to its end.
    Stream(Vec<Val>),
    /// An error of this class.
    Fault(Class),
}

/// What every correct server answers.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The answer.
    pub answer: Answer,
    /// Whether the items of the stream may come in any order.
    pub any_order: bool,
    /// The tables afterwards.
    pub world: World,
}

/// The verdict on `query`, or why there is none: every order of what has no order must lead to the
/// same answer.
pub fn verdict(query: &Json, world: &World) -> Result<Verdict, String> {
    let mut first: Option<Verdict> = None;
    for order in 0..ORDERS {
        let machine = Machine::new(world.clone(), order);
        let answer =
            match machine.eval(query, &Scope::default(), false).and_then(|thing| shown(&machine, thing)) {
                Ok(answer) => answer,
                Err(Fault { class: Class::Unsaid, why }) => return Err(why),
                Err(Fault { class: Class::Empty, .. }) => Answer::Fault(Class::Logic),
                Err(fault) => Answer::Fault(fault.class),
            };
        let world = machine.world.into_inner();
        let Some(known) = &mut first else {
            first = Some(Verdict { answer, any_order: false, world });
            continue;
        };
        if known.world.tables.iter().any(|(name, table)| world.tables[name].rows != table.rows) {
            return Err("rows depend on an order".to_owned());
        }
        if !same(&known.answer, &answer, false) {
            if !same(&known.answer, &answer, true) {
                return Err("depends on an order".to_owned());
            }
            known.any_order = true;
        }
    }
    first.ok_or_else(|| "no order".to_owned())
}

/// A value as a client sees it.
fn shown(machine: &Machine, thing: Thing) -> Out<Answer> {
    let answer = match thing {
        table @ Thing::Table(_) => {
            Answer::Stream(terms::of_thing(machine, table)?.items.into_iter().collect::<Out<_>>()?)
        }
        Thing::Seq(Seq { infinite: true, .. }) => return Err(Fault::unsaid("endless")),
        Thing::Seq(Seq { eager, items, .. }) => {
            let items = items.into_iter().collect::<Out<Vec<Val>>>()?;
            if eager { Answer::Atom(Val::Array(items)) } else { Answer::Stream(items) }
        }
        Thing::Groups(groups) => {
            let groups = match groups {
                Groups::Ready(groups) => groups,
                lazy => {
                    let Val::Array(pairs) = into_datum(ungrouped(lazy)?)? else {
                        return Err(Fault::unsaid("groups"));
                    };
                    return Ok(Answer::Atom(grouped(pairs)));
                }
            };
            let pairs = groups.into_iter().map(|(key, value)| Val::Array(vec![key, value]));
            Answer::Atom(grouped(pairs.collect()))
        }
        Thing::Func(_) | Thing::Db => Answer::Fault(Class::Logic),
        other => Answer::Atom(into_datum(other)?),
    };
    let bounded = match &answer {
        Answer::Atom(value) => value.has_bound(),
        Answer::Stream(items) => items.iter().any(Val::has_bound),
        Answer::Fault(_) => false,
    };
    Ok(if bounded { Answer::Fault(Class::Logic) } else { answer })
}

fn ungrouped(groups: Groups) -> Out<Thing> {
    let Groups::Lazy(groups) = groups else { return Err(Fault::unsaid("groups")) };
    let mut pairs = Vec::new();
    for (key, items) in groups? {
        let items = items.into_iter().collect::<Out<Vec<Val>>>()?;
        if !items.is_empty() {
            pairs.push(Val::Array(vec![key, Val::Array(items)]));
        }
    }
    Ok(Thing::Datum(Val::Array(pairs)))
}

fn grouped(pairs: Vec<Val>) -> Val {
    let name = Val::Text("GROUPED_DATA".to_owned());
    Val::Object([("$reql_type$".to_owned(), name), ("data".to_owned(), Val::Array(pairs))].into())
}

/// Whether two answers are the same; of streams, perhaps in another order.
#[must_use]
pub fn same(a: &Answer, b: &Answer, any_order: bool) -> bool {
    match (a, b) {
        (Answer::Atom(a), Answer::Atom(b)) => alike(a, b),
        (Answer::Fault(a), Answer::Fault(b)) => a == b,
        (Answer::Stream(a), Answer::Stream(b)) if any_order => {
            // By text, because equal values may still look different.
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

/// Whether two values are the same up to the last digits of their numbers, texts of errors aside.
fn alike(a: &Val, b: &Val) -> bool {
    match (a, b) {
        (Val::Number(a), Val::Number(b)) => {
            (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-300) || a == b
        }
        (Val::Array(a), Val::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
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

/// An answer as a person reads it.
#[must_use]
pub fn text(answer: &Answer) -> String {
    match answer {
        Answer::Atom(value) => value.to_json().to_string(),
        Answer::Stream(items) => format!("<{}>", json!(items.iter().map(Val::to_json).collect::<Vec<_>>())),
        Answer::Fault(class) => format!("{class:?}"),
    }
}
