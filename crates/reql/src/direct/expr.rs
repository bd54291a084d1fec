//! Functions of a row that need only its plain fields.

use std::cmp::Ordering;

use datum::row::{FieldPosition, RowView};
use datum::{Datum, Object, Scalar, Text, pseudo};
use memchr::memmem;

use crate::closure::Closure;
use crate::env::Env;
use crate::signature::Op;
use crate::term::{Call, Term};

/// The argument of such a function.
#[derive(Clone, Copy)]
pub(super) enum Item<'a> {
    Row(&'a RowView<'a>),
    Value(Scalar<'a>),
}

/// Why a function has no plain result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// A field is missing: an error of non-existence.
    Missing,
    /// Any other error, or a value that is not plain.
    NotPlain,
}

/// A function of an item. Its parts are evaluated in the same order as in the evaluator, so that both stop at the
/// same part.
pub(super) enum Expr {
    Constant(Datum),
    Item,
    /// A field, with its position in the previous row.
    Field(Text, FieldPosition),
    Compare(Op, Box<[Expr; 2]>),
    /// `and`, `or`: the boolean that decides the result, and the operands.
    Logic(bool, Vec<Expr>),
    Not(Box<Expr>),
    Arithmetic(fn(f64, f64) -> f64, Box<[Expr; 2]>),
    Default(Box<[Expr; 2]>),
    Pieces(Box<Expr>, Pieces),
}

/// Counts the pieces of a string between separators.
pub(super) struct Pieces {
    separator: Text,
    /// The largest number of pieces that is not an error.
    most: usize,
    /// Whether the separator may be part of an escape, so that it cannot be searched for in escaped text.
    may_be_escape: bool,
}

impl Expr {
    pub(super) fn item() -> Expr {
        Expr::Item
    }

    pub(super) fn field(name: Text) -> Expr {
        Expr::Field(name, FieldPosition::default())
    }

    /// The function of a closure, if it is plain. Its parameter may be a row or a value.
    pub(super) fn of_closure(closure: &Closure, env: &Env<'_>) -> Option<Expr> {
        if closure.as_foreign().is_some() || closure.func.params.len() != 1 {
            return None;
        }
        Maker { closure, env }.term(&closure.func.body, DEPTH_MAX)
    }

    /// A test whether the item has every member of an object of plain values.
    pub(super) fn of_pattern(pattern: &Object) -> Option<Expr> {
        if pseudo::is_literal(pattern) {
            return None;
        }
        let member = |(name, wanted): (Text, Datum)| {
            Scalar::of_datum(&wanted)?;
            Some(Expr::Compare(Op::Eq, Box::new([Expr::field(name), Expr::Constant(wanted)])))
        };
        pattern.iter().map(member).collect::<Option<Vec<_>>>().map(|members| Expr::Logic(false, members))
    }

    /// The position, in the previous row, of the first field that is read, if any.
    pub(super) fn first_field(&self) -> Option<FieldPosition> {
        let first = |parts: &[Expr]| parts.iter().find_map(Expr::first_field);
        match self {
            Expr::Constant(_) | Expr::Item => None,
            Expr::Field(_, position) => Some(*position),
            Expr::Not(inner) | Expr::Pieces(inner, _) => inner.first_field(),
            Expr::Compare(_, parts) | Expr::Arithmetic(_, parts) | Expr::Default(parts) => first(&parts[..]),
            Expr::Logic(_, parts) => first(parts),
        }
    }

    /// Evaluates the function for `item`.
    pub(super) fn eval<'a>(&'a mut self, item: Item<'a>) -> Result<Scalar<'a>, Stop> {
        match self {
            Expr::Constant(datum) => Scalar::of_datum(datum).ok_or(Stop::NotPlain),
            Expr::Item => match item {
                Item::Value(value) => Ok(value),
                Item::Row(_) => Err(Stop::NotPlain),
            },
            Expr::Field(name, position) => match item {
                Item::Row(row) => {
                    let json = row.field(name, position).ok_or(Stop::Missing)?;
                    Scalar::of_json(json).ok_or(Stop::NotPlain)
                }
                Item::Value(_) => Err(Stop::NotPlain),
            },
            Expr::Compare(op, sides) => {
                let [a, b] = &mut **sides;
                // Fast path for the most frequent comparison.
                if let (Expr::Field(name, position), Expr::Constant(Datum::Number(wanted)), Item::Row(row)) =
                    (&mut *a, &*b, item)
                {
                    let json = row.field(name, position).ok_or(Stop::Missing)?;
                    if let Some(found @ Scalar::Number(_)) = Scalar::of_json(json) {
                        return Ok(Scalar::Bool(holds(*op, found.compare(Scalar::Number(*wanted)))));
                    }
                }
                let order = a.eval(item)?.compare(b.eval(item)?);
                Ok(Scalar::Bool(holds(*op, order)))
            }
            Expr::Logic(decides, values) => {
                let mut last = Scalar::Bool(!*decides);
                for value in values {
                    last = value.eval(item)?;
                    if last.is_truthy() == *decides {
                        break;
                    }
                }
                Ok(last)
            }
            Expr::Not(value) => Ok(Scalar::Bool(!value.eval(item)?.is_truthy())),
            Expr::Arithmetic(operation, sides) => {
                let [a, b] = &mut **sides;
                let (Scalar::Number(a), Scalar::Number(b)) = (a.eval(item)?, b.eval(item)?) else {
                    return Err(Stop::NotPlain);
                };
                let number = operation(a, b);
                if number.is_finite() { Ok(Scalar::Number(number)) } else { Err(Stop::NotPlain) }
            }
            Expr::Default(sides) => {
                let [first, second] = &mut **sides;
                match first.eval(item) {
                    Ok(Scalar::Null) | Err(Stop::Missing) => second.eval(item),
                    decided => decided,
                }
            }
            Expr::Pieces(text, pieces) => pieces.count(text.eval(item)?).ok_or(Stop::NotPlain),
        }
    }
}

impl Pieces {
    fn count<'a>(&self, text: Scalar<'a>) -> Option<Scalar<'a>> {
        let text = match text {
            Scalar::Text(text) => text,
            Scalar::Escaped(text) if !self.may_be_escape => text,
            _ => return None,
        };
        let count = 1 + occurrences(text, self.separator.as_bytes());
        (count <= self.most).then_some(Scalar::Number(count as f64))
    }
}

fn holds(op: Op, order: Ordering) -> bool {
    match op {
        Op::Eq => order.is_eq(),
        Op::Ne => order.is_ne(),
        Op::Lt => order.is_lt(),
        Op::Le => order.is_le(),
        Op::Gt => order.is_gt(),
        _ => order.is_ge(),
    }
}

fn occurrences(text: &[u8], separator: &[u8]) -> usize {
    match separator {
        [only] => memchr::memchr_iter(*only, text).count(),
        _ => memmem::find_iter(text, separator).count(),
    }
}

/// More deeply nested functions are left to the evaluator, which can extend its stack.
const DEPTH_MAX: usize = 32;

/// Translates the body of a function into an expression.
struct Maker<'a> {
    closure: &'a Closure,
    env: &'a Env<'a>,
}

impl Maker<'_> {
    fn term(&self, term: &Term, depth: usize) -> Option<Expr> {
        match term {
            Term::Datum(datum) => constant(datum),
            Term::Var(id) if self.closure.func.params.first() == Some(id) => Some(Expr::Item),
            Term::Var(id) => {
                let captured = self.closure.captured.iter().find(|(name, _)| name == id);
                captured.and_then(|(_, value)| constant(value))
            }
            Term::Func(_) => None,
            Term::Call(call) => self.call(call, depth.checked_sub(1)?),
        }
    }

    fn call(&self, call: &Call, depth: usize) -> Option<Expr> {
        if call.traits.open || call.traits.splices || !call.optargs.is_empty() {
            return None;
        }
        let made = |term: &Term| self.term(term, depth);
        let two = |a: &Term, b: &Term| Some(Box::new([made(a)?, made(b)?]));
        match (call.op, call.args.as_slice()) {
            (Op::Bracket | Op::GetField, [of, Term::Datum(Datum::String(name))]) => {
                matches!(made(of)?, Expr::Item).then(|| Expr::field(name.clone()))
            }
            (op @ (Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge), [a, b]) => {
                Some(Expr::Compare(op, two(a, b)?))
            }
            (op @ (Op::And | Op::Or), values) => {
                let values = values.iter().map(made).collect::<Option<_>>()?;
                Some(Expr::Logic(op == Op::Or, values))
            }
            (Op::Not, [value]) => Some(Expr::Not(Box::new(made(value)?))),
            (Op::Add, [a, b]) => Some(Expr::Arithmetic(|a, b| a + b, two(a, b)?)),
            (Op::Sub, [a, b]) => Some(Expr::Arithmetic(|a, b| a - b, two(a, b)?)),
            (Op::Mul, [a, b]) => Some(Expr::Arithmetic(|a, b| a * b, two(a, b)?)),
            // Division by zero gives an infinite result, which is left to the evaluator: it is an error there.
            (Op::Div, [a, b]) => Some(Expr::Arithmetic(|a, b| a / b, two(a, b)?)),
            (Op::Default, [first, second]) => Some(Expr::Default(two(first, second)?)),
            (Op::Count, [Term::Call(split)]) => self.pieces(split, depth),
            _ => None,
        }
    }

    fn pieces(&self, split: &Call, depth: usize) -> Option<Expr> {
        if split.op != Op::Split || split.traits.open || split.traits.splices || !split.optargs.is_empty() {
            return None;
        }
        match split.args.as_slice() {
            [text, Term::Datum(Datum::String(separator))] if !separator.is_empty() => {
                let text = Box::new(self.term(text, depth)?);
                let may_be_escape = separator.bytes().any(datum::may_be_escape);
                let (separator, most) = (separator.clone(), self.env.array_limit);
                Some(Expr::Pieces(text, Pieces { separator, most, may_be_escape }))
            }
            _ => None,
        }
    }
}

fn constant(datum: &Datum) -> Option<Expr> {
    Scalar::of_datum(datum).is_some().then(|| Expr::Constant(datum.clone()))
}
