//! Replaces variables in a function with their values.

use std::sync::Arc;

use datum::Datum;

use crate::deep;
use crate::term::{Call, FuncTerm, Term, VarId};

/// Replaces the variables of `values` in `func` with their values.
pub(super) fn filled(func: &Arc<FuncTerm>, values: &[(VarId, Datum)]) -> Arc<FuncTerm> {
    let free: Vec<(VarId, Datum)> =
        values.iter().filter(|(id, _)| func.captures.contains(id)).cloned().collect();
    if free.is_empty() {
        return func.clone();
    }
    Arc::new(FuncTerm {
        params: func.params.clone(),
        body: filled_term(&func.body, &free),
        captures: func
            .captures
            .iter()
            .filter(|id| !free.iter().any(|(name, _)| name == *id))
            .copied()
            .collect(),
        closed: func.closed,
        path: None,
    })
}

fn filled_term(term: &Term, values: &[(VarId, Datum)]) -> Term {
    deep::level(|| match term {
        Term::Datum(_) => term.clone(),
        Term::Var(id) => match values.iter().find(|(name, _)| name == id) {
            Some((_, value)) => Term::Datum(value.clone()),
            None => Term::Var(*id),
        },
        Term::Func(func) => Term::Func(filled(func, values)),
        Term::Call(call) => Term::Call(Box::new(Call {
            op: call.op,
            args: call.args.iter().map(|arg| filled_term(arg, values)).collect(),
            optargs: call
                .optargs
                .iter()
                .map(|(name, arg)| (name.clone(), filled_term(arg, values)))
                .collect(),
            traits: call.traits,
            path: call.path.clone(),
        })),
    })
}
