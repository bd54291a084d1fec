//! Determinism of terms: when the same arguments give the same result.
//!
//! Replicated writes that are evaluated once, index functions and write hooks each require a certain level. Source:
//! docs/reql-spec.md section 6.

use crate::deep;
use crate::signature::{self, Nature, Op};
use crate::term::{Call, FuncTerm, Term};

/// How deterministic a term is, most deterministic first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Determinism {
    /// Deterministic: required for indexes and write hooks.
    Always,
    /// Deterministic within one query (`now`): enough for an atomic update.
    WithinQuery,
    /// Deterministic on one server (geometry).
    OnServer,
    /// Not deterministic.
    Never,
}

/// Whether `term` uses random numbers, so that evaluating it again may give another result.
#[must_use]
pub fn is_random(term: &Term) -> bool {
    has_call(term, &|call| signature::of(call.op).nature == Nature::Random && !is_named_uuid(call))
}

/// Whether `term` may be evaluated more than once: nothing in it writes or is random.
#[must_use]
pub fn can_be_repeated(term: &Term) -> bool {
    !has_call(term, &|call| signature::of(call.op).nature == Nature::Write) && !is_random(term)
}

/// Whether a term of the query `term`, or the query itself, may ask for the option of the whole query with this name.
#[must_use]
pub fn may_ask_for(term: &Term, option: &str) -> bool {
    let takes = |op: Op| signature::of(op).optargs.contains(&option);
    let of_terms = signature::all().iter().any(|row| row.optargs.contains(&option));
    !of_terms || has_call(term, &|call| takes(call.op))
}

fn has_call(term: &Term, test: &dyn Fn(&Call) -> bool) -> bool {
    match term {
        Term::Datum(_) | Term::Var(_) => false,
        Term::Func(func) => deep::level(|| has_call(&func.body, test)),
        Term::Call(call) => deep::level(|| {
            let optargs = call.optargs.iter().map(|(_, term)| term);
            test(call) || call.args.iter().chain(optargs).any(|term| has_call(term, test))
        }),
    }
}

/// Whether an identifier is derived from its argument. With `r.args` the number of arguments is unknown.
fn is_named_uuid(call: &Call) -> bool {
    let is_name = |term: &Term| term.as_call().is_none_or(|arg| arg.op != Op::Args);
    call.op == Op::Uuid && matches!(call.args.as_slice(), [name] if is_name(name))
}

/// The determinism of a function.
#[must_use]
pub fn of_func(func: &FuncTerm) -> Determinism {
    of_term(&func.body)
}

/// Whether `func` may be the function of an index or a write hook. As in RethinkDB, terms that read only by their
/// arguments are as deterministic as these: `changes` of an array is accepted, and fails when the function is called.
#[must_use]
pub fn is_storable(func: &FuncTerm) -> bool {
    let own = |call: &Call| match call.op {
        Op::Get
        | Op::GetAll
        | Op::Between
        | Op::BetweenDeprecated
        | Op::GetIntersecting
        | Op::GetNearest
        | Op::EqJoin
        | Op::ForEach
        | Op::Changes => Determinism::Always,
        _ => own(call),
    };
    least(&func.body, &own) == Determinism::Always
}

/// The determinism of a term: that of its least deterministic part.
#[must_use]
pub fn of_term(term: &Term) -> Determinism {
    least(term, &own)
}

/// The determinism of a term without its arguments.
fn own(call: &Call) -> Determinism {
    match signature::of(call.op).nature {
        Nature::Random if is_named_uuid(call) => Determinism::Always,
        Nature::Closed => Determinism::Always,
        Nature::Constant => Determinism::WithinQuery,
        Nature::Shape => Determinism::OnServer,
        Nature::Random | Nature::Read | Nature::Write => Determinism::Never,
    }
}

fn least(term: &Term, own: &dyn Fn(&Call) -> Determinism) -> Determinism {
    match term {
        Term::Datum(_) | Term::Var(_) => Determinism::Always,
        Term::Func(func) => deep::level(|| least(&func.body, own)),
        Term::Call(call) => deep::level(|| {
            let optargs = call.optargs.iter().map(|(_, term)| term);
            let parts = call.args.iter().chain(optargs).map(|term| least(term, own));
            parts.fold(own(call), Determinism::max)
        }),
    }
}
