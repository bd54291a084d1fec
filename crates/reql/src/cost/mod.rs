//! Bounds the cost of a function by static analysis of its text. A thread that serves many clients runs only cheap
//! functions itself; all others go to a separate thread, where they can be cancelled.
//!
//! Sizes of values are measured in rows ([`Size`]): the sum of two fields is no larger than two rows, twice a
//! field is no larger than two rows, and a variable has the size of the value bound to it. The time of a term grows with its
//! arguments and its result, but only for the terms that [`growth()`] lists; any other term may take arbitrarily
//! long.

mod growth;

use datum::Datum;

use crate::cost::growth::{Growth, growth};
use crate::signature::Op;
use crate::term::{Call, FuncTerm, Term, VarId};

/// A bound on the time of one call of a function, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// At most a few walks through its arguments and its text.
    Brief,
    /// At most a few such walks for each part of the arguments: functions called for each item (not nested),
    /// patterns that are searched for, and geometries.
    PerItem,
    /// No known bound.
    Unbounded,
}

/// A function with more terms is not brief.
const TERMS_MAX: usize = 500;
/// A function that makes or reads more than this many times the size of its row is not brief.
const ROWS_MAX: usize = 2000;
/// Most fields or values that a term may look up in each item of a possible sequence.
const EACH_MAX: usize = 8;
/// Minimum number of bytes, in the text that names the fields, for each field.
const FIELD_BYTES: usize = 8;

/// Bounds the cost of a call of `func`.
#[must_use]
pub fn of_func(func: &FuncTerm) -> Cost {
    let mut measure = Measure {
        terms: TERMS_MAX,
        rows: ROWS_MAX,
        bound: func.params.iter().map(|id| (*id, Size::ROW)).collect(),
        in_loop: false,
        cost: Cost::Brief,
    };
    measure.term(&func.body).map_or(Cost::Unbounded, |_| measure.cost)
}

/// A bound on the size of a value.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// The number of rows, or of texts of the query, that the value does not exceed; 0 for a number, a bool, null
    /// or a time.
    rows: usize,
    items: Items,
    /// Whether the value is certainly not a sequence. Many terms over a sequence do their work for each item.
    is_single: bool,
}

/// A bound on the number of items of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Items {
    /// No more than the size says.
    Few,
    /// Like `Few`, but each item can be as large as the size says.
    Mapped,
    /// The product of the lengths of several such sequences.
    Many,
}

impl Size {
    const SCALAR: Size = Size { rows: 0, items: Items::Few, is_single: true };
    const ROW: Size = Size { rows: 1, items: Items::Few, is_single: true };
    const UNKNOWN: Size = Size { is_single: false, ..Size::ROW };

    fn times(self, factor: usize) -> Size {
        Size { rows: self.rows.saturating_mul(factor), ..self }
    }

    /// At least one row: the size of a value that is not a scalar.
    fn compound(self) -> Size {
        Size { rows: self.rows.max(1), ..self }
    }

    fn and(self, other: Size) -> Size {
        Size { rows: self.rows.saturating_add(other.rows), ..self.or(other) }
    }

    fn or(self, other: Size) -> Size {
        Size {
            rows: self.rows.max(other.rows),
            items: self.items.max(other.items),
            is_single: self.is_single && other.is_single,
        }
    }
}

/// A walk through the text of a function. Its methods return `None` if there is no bound.
struct Measure {
    /// Remaining terms until the limit.
    terms: usize,
    /// Remaining rows until the limit.
    rows: usize,
    /// The variables of the function and of functions inside it, with the sizes of their values.
    bound: Vec<(VarId, Size)>,
    /// Whether the current term is evaluated for each item of a sequence.
    in_loop: bool,
    cost: Cost,
}

impl Measure {
    fn term(&mut self, term: &Term) -> Option<Size> {
        self.terms = self.terms.checked_sub(1)?;
        let size = match term {
            Term::Datum(Datum::Null | Datum::Bool(_) | Datum::Number(_) | Datum::Time(_)) => Size::SCALAR,
            Term::Datum(Datum::Array(_)) => Size::UNKNOWN,
            Term::Datum(_) => Size::ROW,
            // A captured variable may have any value.
            Term::Var(id) => {
                let bound = self.bound.iter().rfind(|(known, _)| known == id);
                bound.map_or(Size::UNKNOWN, |(_, size)| *size)
            }
            // The function might be called in any way.
            Term::Func(_) => return None,
            Term::Call(call) => self.call(call)?,
        };
        // Evaluated again for each item.
        if self.in_loop && size.items != Items::Few {
            return None;
        }
        self.spend(size.rows)?;
        Some(size)
    }

    fn spend(&mut self, rows: usize) -> Option<()> {
        self.rows = self.rows.checked_sub(rows)?;
        Some(())
    }

    fn call(&mut self, call: &Call) -> Option<Size> {
        let growth = growth(call.op)?;
        if call.traits.open || call.traits.splices {
            return None;
        }
        match (call.op, call.args.as_slice()) {
            (Op::Funcall, [Term::Func(func), values @ ..]) => return self.called(func, values),
            (Op::Mul, factors) => return self.product(factors),
            (Op::Format, [Term::Datum(Datum::String(template)), members]) => {
                let fields = template.bytes().filter(|byte| *byte == b'{').count();
                return Some(self.term(members)?.times(growth.factor().saturating_mul(fields)).compound());
            }
            (Op::Match, [_, Term::Datum(_)]) => self.cost = Cost::PerItem,
            (Op::Funcall | Op::Match | Op::Format, _) => return None,
            (_, args) if args.iter().any(|arg| matches!(arg, Term::Func(_))) => return self.looped(call),
            // Every item is searched for the fields of the pattern.
            (Op::Filter, _) => self.cost = Cost::PerItem,
            // Validation compares the edges of a geometry with one another.
            (Op::Geojson | Op::Line | Op::Polygon, _) => self.cost = Cost::PerItem,
            _ => {}
        }
        let mut sizes = Vec::with_capacity(call.args.len());
        for arg in call.args.iter().chain(call.optargs.iter().map(|(_, term)| term)) {
            sizes.push(self.term(arg)?);
        }
        let first = sizes.first().copied().unwrap_or(Size::SCALAR);
        match call.op {
            Op::Pluck | Op::Without | Op::WithFields | Op::HasFields => {
                self.fields(first, call.args.get(1..)?)?;
            }
            // The merge is done for each item of a sequence.
            Op::Merge if !first.is_single => return None,
            Op::OrderBy | Op::Contains if call.args.len() > 1 + EACH_MAX => return None,
            _ => {}
        }
        let size = match growth {
            Growth::Scalar => Size::SCALAR,
            Growth::First(factor) => first.times(factor).compound(),
            Growth::OneOf => sizes.iter().copied().fold(Size::SCALAR, Size::or),
            Growth::Number => sizes.iter().copied().fold(Size::SCALAR, Size::and),
            Growth::AllOf => sizes.iter().copied().fold(Size::SCALAR, Size::and).compound(),
        };
        Some(grown(call.op, Size { is_single: makes_single(call.op, &sizes), ..size }))
    }

    /// A function that is called once, with `values`.
    fn called(&mut self, func: &FuncTerm, values: &[Term]) -> Option<Size> {
        let sizes = values.iter().map(|value| self.term(value)).collect::<Option<Vec<_>>>()?;
        self.body(func, &sizes)
    }

    fn body(&mut self, func: &FuncTerm, sizes: &[Size]) -> Option<Size> {
        let before = self.bound.len();
        self.bound.extend(func.params.iter().copied().zip(sizes.iter().copied()));
        let size = self.term(&func.body);
        self.bound.truncate(before);
        size
    }

    /// An array times a number is as many times as large. At most one factor may be an array, and the others must
    /// be constants.
    fn product(&mut self, factors: &[Term]) -> Option<Size> {
        let (mut times, mut may_be_array, mut is_known) = (1_usize, None, true);
        for factor in factors {
            let size = self.term(factor)?;
            match factor {
                // Only an integer can multiply an array.
                Term::Datum(Datum::Number(n)) if n.fract() == 0.0 => {
                    times = times.saturating_mul(*n as usize)
                }
                Term::Datum(Datum::Number(_)) => {}
                _ if size.rows == 0 => is_known = false,
                _ if may_be_array.replace(size).is_some() => return None,
                _ => {}
            }
        }
        match may_be_array {
            None => Some(Size::SCALAR),
            Some(size) => is_known.then(|| grown(Op::Mul, size.times(times.max(1)))),
        }
    }

    /// Fields that are looked up in an object, or in each object of a sequence. They must be constants.
    fn fields(&mut self, object: Size, fields: &[Term]) -> Option<()> {
        let mut count = 0_usize;
        for spec in fields {
            count += match spec {
                Term::Datum(Datum::String(_)) => 1,
                Term::Datum(spec) => spec.json_size_to(ROWS_MAX * FIELD_BYTES) / FIELD_BYTES + 1,
                _ => return None,
            };
        }
        if !object.is_single && count > EACH_MAX {
            return None;
        }
        self.spend(count.saturating_mul(object.rows.max(1)))
    }

    /// A term that calls a function for each item.
    fn looped(&mut self, call: &Call) -> Option<Size> {
        if self.in_loop || !call.optargs.iter().all(|(_, term)| matches!(term, Term::Datum(_))) {
            return None;
        }
        self.cost = Cost::PerItem;
        let of_items = |size: &Size| Size { items: Items::Few, is_single: false, ..*size };
        let mut sources = Vec::new();
        let mut made: Option<Size> = None;
        for arg in &call.args {
            let Term::Func(func) = arg else {
                sources.push(self.term(arg)?);
                continue;
            };
            if sources.iter().any(|source| source.items == Items::Many) {
                return None;
            }
            let items: Vec<Size> = sources.iter().map(of_items).collect();
            self.in_loop = true;
            let size = self.body(func, &items)?;
            self.in_loop = false;
            made = Some(made.map_or(size, |made| made.and(size)));
        }
        let (first, made) = (*sources.first()?, made?);
        Some(match call.op {
            Op::Count | Op::Sum | Op::Avg | Op::Contains => Size::SCALAR,
            Op::Filter | Op::Min | Op::Max | Op::OrderBy | Op::OffsetsOf => first,
            Op::Map => Size { items: Items::Mapped, ..made }.compound(),
            Op::ConcatMap | Op::Merge => Size { items: Items::Many, ..first.and(made) }.compound(),
            _ => return None,
        })
    }
}

/// Whether the result of a term with arguments of these sizes is certainly not a sequence.
fn makes_single(op: Op, sizes: &[Size]) -> bool {
    match op {
        Op::MakeObj | Op::Object => true,
        Op::Pluck | Op::Without | Op::Merge => sizes.first().is_some_and(|first| first.is_single),
        Op::Default => sizes.iter().all(|size| size.is_single),
        Op::Branch => {
            let is_answer = |i: usize| i % 2 == 1 || i + 1 == sizes.len();
            sizes.iter().enumerate().all(|(i, size)| size.is_single || !is_answer(i))
        }
        op => matches!(growth(op), Some(Growth::Scalar)),
    }
}

/// The size of a term's result over sequences that functions made. If the term may concatenate them, the number of
/// items is unbounded.
fn grown(op: Op, size: Size) -> Size {
    let keeps = matches!(op, Op::OrderBy | Op::Slice | Op::Limit | Op::Skip | Op::Distinct | Op::CoerceTo);
    let items = if keeps || size.items == Items::Few { size.items } else { Items::Many };
    Size { items, ..size }
}

#[cfg(test)]
mod tests;
