//! How far the same arguments give the same answer.
//!
//! Writes that are evaluated once and then replicated, index functions and write hooks each allow
//! so much and no more. Source: docs/reql-spec.md section 6.

use crate::deep;
use crate::signature::{self, Nature, Op};
use crate::term::{Call, FuncTerm, Term};

/// How far the answer of a term depends on its arguments alone, most predictable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Determinism {
    /// The same arguments always give the same answer: what indexes and write hooks need.
    Always,
    /// Within one query they do (`now`): enough for an atomic update.
    WithinQuery,
    /// On one server they do (geometry).
    OnServer,
    /// They need not.
    Never,
}

/// Whether an answer of `term` depends on chance: another may come when it is asked again.
#[must_use]
pub fn is_random(term: &Term) -> bool {
    has_call(term, &|call| signature::of(call.op).nature == Nature::Random && !is_named_uuid(call))
}

/// Whether `term` may be evaluated twice as well as once: nothing in it writes or depends on chance.
#[must_use]
pub fn can_be_repeated(term: &Term) -> bool {
    !has_call(term, &|call| signature::of(call.op).nature == Nature::Write) && !is_random(term)
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

/// Whether an identifier is made of its argument alone. How many there are is not known of `r.args`.
fn is_named_uuid(call: &Call) -> bool {
    let is_name = |term: &Term| term.as_call().is_none_or(|arg| arg.op != Op::Args);
    call.op == Op::Uuid && matches!(call.args.as_slice(), [name] if is_name(name))
}

/// How predictable a function is.
#[must_use]
pub fn of_func(func: &FuncTerm) -> Determinism {
    of_term(&func.body)
}

/// How predictable a term is: as its least predictable part.
#[must_use]
pub fn of_term(term: &Term) -> Determinism {
    let call = match term {
        Term::Datum(_) | Term::Var(_) => return Determinism::Always,
        Term::Func(func) => return deep::level(|| of_func(func)),
        Term::Call(call) => call,
    };
    let own = match signature::of(call.op).nature {
        Nature::Random if is_named_uuid(call) => Determinism::Always,
        Nature::Closed => Determinism::Always,
        Nature::Constant => Determinism::WithinQuery,
        Nature::Shape => Determinism::OnServer,
        Nature::Random | Nature::Read | Nature::Write => Determinism::Never,
    };
    deep::level(|| {
        let optargs = call.optargs.iter().map(|(_, term)| term);
        call.args.iter().chain(optargs).map(of_term).fold(own, Determinism::max)
    })
}
