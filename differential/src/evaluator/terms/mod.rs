//! The terms, by family.

mod arithmetic;
mod arrays;
mod chance;
mod coerce;
mod control;
mod geo;
mod group;
mod index;
mod join;
mod members;
mod object;
mod order;
mod outline;
mod paths;
mod sequence;
mod slice;
mod sphere;
mod strings;
mod tables;
mod terminal;
mod times;
mod union;
mod vincenty;
mod write;

use serde_json::Value as Json;

use crate::evaluator::args::Args;
use crate::evaluator::term_value::TermValue;
use crate::fault::{Class, Fault, Out};
use crate::value::Val;

pub use group::ready;
pub use object::get_field;
pub use sequence::{collected, of_value};

/// Terms that take grouped data as it is.
const NOT_PER_GROUP: [u64; 7] = [52, 64, 69, 79, 92, 137, 150];

/// Terms whose arguments are evaluated only where they are needed.
const LAZY: [u64; 6] = [64, 65, 66, 67, 92, 69];
/// Terms that may finish before all of their arguments are evaluated.
const HASTY: [u64; 15] = [17, 18, 19, 20, 21, 22, 31, 32, 33, 34, 35, 96, 163, 164, 170];

/// The value of a term. Most terms apply to each group of grouped data.
///
/// No rule determines which of several errors in one term is reported.
pub fn call(args: Args<'_>) -> Out<TermValue> {
    let answer = answer(&args);
    // A server keeps only the requested rows, so that there is no array. See docs/reference/differences.md.
    if let (71, Some(Json::Array(ordered)), Err(Fault { class: Class::Resource, .. })) =
        (args.id, args.term(0), &answer)
        && ordered[0] == 41
    {
        return Err(Fault::unspecified("few of many that are ordered"));
    }
    if LAZY.contains(&args.id) || (answer.is_ok() && !HASTY.contains(&args.id)) {
        return answer;
    }
    let class = answer.as_ref().err().map(|fault| fault.class);
    for i in 0..args.len() {
        let known = match args.id {
            17..=22 => args.datum(i).map(|_| ()),
            _ => args.value_with(i, true).map(|_| ()),
        };
        if let Err(other) = known
            && Some(other.class) != class
        {
            return Err(Fault::unspecified("more than one mistake"));
        }
    }
    answer
}

fn answer(args: &Args<'_>) -> Out<TermValue> {
    if args.is_empty() || NOT_PER_GROUP.contains(&args.id) {
        return family(args);
    }
    match args.value(0)? {
        TermValue::Groups(groups) => group::each(args, groups),
        first => family(&args.with_first(first)),
    }
}

/// Whether a term always has the same value.
pub(crate) fn is_deterministic(term: &Json) -> bool {
    match term {
        Json::Array(parts) => {
            let id = parts.first().and_then(Json::as_u64).unwrap_or(0);
            let chance = matches!(id, 11 | 14..=16 | 36 | 53..=63 | 78 | 81 | 151 | 153 | 157 | 160..=168 | 171 | 182)
                || (id == 169 && parts.get(1).and_then(Json::as_array).is_none_or(Vec::is_empty));
            !chance
                && parts.iter().skip(1).all(|part| match part {
                    Json::Array(args) => args.iter().all(is_deterministic),
                    other => is_deterministic(other),
                })
        }
        Json::Object(members) => members.values().all(is_deterministic),
        _ => true,
    }
}

/// The value of a term without grouped data.
fn family(args: &Args<'_>) -> Out<TermValue> {
    match args.id {
        1..=3 | 12 | 23 | 52 | 64..=67 | 92 | 98 | 137 | 155 | 169 | 172 | 180 | 181 => control::eval(args),
        51 => coerce::eval(args),
        17..=22 | 24..=28 | 183..=185 | 191..=196 => arithmetic::eval(args),
        97 | 141 | 142 | 149 | 197 => strings::eval(args),
        29 | 80 | 82..=85 | 88..=91 => arrays::eval(args),
        31..=35 | 94 | 96 | 143 | 170 | 186 => object::eval(args),
        38..=40 | 86 | 87 | 93 | 95 | 173 | 187 | 81 => sequence::eval(args),
        44 => union::eval(args),
        37 | 43 | 145..=148 => terminal::eval(args),
        30 | 45 | 70 | 71 => slice::eval(args),
        41 | 42 => order::eval(args),
        48..=50 | 72 => join::eval(args),
        144 | 150 => group::eval(args),
        14..=16 | 36 | 78 | 182 => tables::eval(args),
        53..=56 | 68 => write::eval(args),
        99..=102 | 104..=136 => times::eval(args),
        157..=168 | 171 => geo::eval(args),
        11 | 59 | 62 | 77 | 79 | 103 | 138 | 151 | 153 | 177 => chance::eval(args),
        other => Err(Fault::unspecified(format!("term {other}"))),
    }
}

fn datum(value: Val) -> Out<TermValue> {
    Ok(TermValue::Datum(value))
}

/// A number as a value; an error if it is not finite.
fn number(n: f64) -> Out<TermValue> {
    if n.is_finite() { datum(Val::Number(n)) } else { Err(Fault::logic("non-finite number")) }
}
