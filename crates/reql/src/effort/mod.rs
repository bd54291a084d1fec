//! How long a function can take, seen from its text alone: who serves many clients on one thread runs there
//! only what is soon over, and leaves the rest to a thread of its own, where it can be told to stop.
//!
//! What is made of a row is measured in rows ([`Size`]): a sum of two fields is no larger than two rows, twice a
//! field no larger than two, and what a variable stands for has the size of what it is bound to. The time that
//! a term takes grows with what it is given and what it makes. Only the terms that [`growth`] lists are known to
//! be so; every other may take any time.

mod growth;

use datum::Datum;

use crate::effort::growth::{Growth, growth};
use crate::signature::Op;
use crate::term::{Call, FuncTerm, Term, VarId};

/// How long a call of a function can take, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// No longer than it takes to look at its arguments and its text a few times.
    Brief,
    /// No longer than it takes to look at them a few times for each part of them: functions that are called for
    /// items, none within another, patterns that are looked for,
    /// and shapes.
    Walk,
    /// Nobody knows.
    Open,
}

/// A function of more terms is not brief, whatever they are.
const TERMS_MAX: usize = 500;
/// Neither is one that makes and looks at more than so many times its row.
const ROWS_MAX: usize = 2000;
/// Of what may be a sequence each item is looked at for no more fields or values.
const EACH_MAX: usize = 8;
/// Bytes of the text that says which fields are meant, for each field at least.
const FIELD_BYTES: usize = 8;

/// How long a call of `func` can take.
#[must_use]
pub fn of_func(func: &FuncTerm) -> Effort {
    let mut measure = Measure {
        terms: TERMS_MAX,
        rows: ROWS_MAX,
        bound: func.params.iter().map(|id| (*id, Size::ROW)).collect(),
        in_loop: false,
        effort: Effort::Brief,
    };
    measure.term(&func.body).map_or(Effort::Open, |_| measure.effort)
}

/// How large a value can be.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Rows, and texts of the query, that it is no larger than; none for a number, a bool, null or a time.
    rows: usize,
    items: Items,
    /// Whether it is certainly no sequence. Of a sequence, many terms do for each item what they do.
    is_single: bool,
}

/// How many items a sequence can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Items {
    /// As many as its size says.
    Few,
    /// So many, each of which can be as large as the size says.
    Mapped,
    /// For each item of such a sequence as many.
    Many,
}

impl Size {
    const SCALAR: Size = Size { rows: 0, items: Items::Few, is_single: true };
    const ROW: Size = Size { rows: 1, items: Items::Few, is_single: true };
    const UNKNOWN: Size = Size { is_single: false, ..Size::ROW };

    fn times(self, factor: usize) -> Size {
        Size { rows: self.rows.saturating_mul(factor), ..self }
    }

    /// At least a row: of something that is no scalar.
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

/// A walk through the text of a function. `None` where nobody knows how long something takes.
struct Measure {
    /// Terms that may follow.
    terms: usize,
    /// Rows that may be made or looked at.
    rows: usize,
    /// Variables that the function, and those within it, are called with.
    bound: Vec<(VarId, Size)>,
    /// Whether this is called for each item of something.
    in_loop: bool,
    effort: Effort,
}

impl Measure {
    fn term(&mut self, term: &Term) -> Option<Size> {
        self.terms = self.terms.checked_sub(1)?;
        let size = match term {
            Term::Datum(Datum::Null | Datum::Bool(_) | Datum::Number(_) | Datum::Time(_)) => Size::SCALAR,
            Term::Datum(Datum::Array(_)) => Size::UNKNOWN,
            Term::Datum(_) => Size::ROW,
            // What was captured is of any kind.
            Term::Var(id) => {
                let bound = self.bound.iter().rfind(|(known, _)| known == id);
                bound.map_or(Size::UNKNOWN, |(_, size)| *size)
            }
            // It is not known who calls it.
            Term::Func(_) => return None,
            Term::Call(call) => self.call(call)?,
        };
        // For each item anew.
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
            (Op::Match, [_, Term::Datum(_)]) => self.effort = Effort::Walk,
            (Op::Funcall | Op::Match | Op::Format, _) => return None,
            (_, args) if args.iter().any(|arg| matches!(arg, Term::Func(_))) => return self.looped(call),
            // The fields of the pattern are looked for in each item.
            (Op::Filter, _) => self.effort = Effort::Walk,
            // Whether the sides of a shape meet is asked of its sides.
            (Op::Geojson | Op::Line | Op::Polygon, _) => self.effort = Effort::Walk,
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
            // With each item of a sequence.
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

    /// An array times a number is so many times as large: at most one factor may be an array then, and the
    /// others must be written out.
    fn product(&mut self, factors: &[Term]) -> Option<Size> {
        let (mut times, mut may_be_array, mut is_known) = (1_usize, None, true);
        for factor in factors {
            let size = self.term(factor)?;
            match factor {
                // A number that is no integer multiplies no array.
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

    /// Fields that are looked for in an object, or in each of a sequence, each apart: they must be written out.
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
        self.effort = Effort::Walk;
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

/// Whether what a term makes of arguments of these sizes is certainly no sequence.
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

/// What a term makes of sequences that functions made: if it may put them together, of how many items nobody
/// keeps count.
fn grown(op: Op, size: Size) -> Size {
    let keeps = matches!(op, Op::OrderBy | Op::Slice | Op::Limit | Op::Skip | Op::Distinct | Op::CoerceTo);
    let items = if keeps || size.items == Items::Few { size.items } else { Items::Many };
    Size { items, ..size }
}

#[cfg(test)]
mod tests;
