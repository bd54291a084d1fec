//! The variables of enclosing functions that a function uses, as RethinkDB determines them.

use std::collections::BTreeSet;

use super::parts::{Parts, is_datum, op_of, params_of};
use super::place::is_row_of;
use crate::deep;
use crate::signature::Op;
use crate::term::VarId;
use crate::wire::compile::var_id;
use crate::wire::tape::Value;

/// Variables that a function uses and does not bind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreeVariables {
    /// Those used by their number.
    pub ids: BTreeSet<VarId>,
    /// Whether it uses `r.row` of an enclosing function.
    pub row: bool,
}

/// The free variables of a function in wire form.
pub(super) fn of_func(func: Value<'_, '_>) -> FreeVariables {
    let mut walk = Walk { bound: Vec::new(), rows: 0, free: FreeVariables::default() };
    walk.term(func);
    walk.free
}

struct Walk {
    /// The parameters of the functions around the term.
    bound: Vec<VarId>,
    /// How many of these functions give `r.row` a meaning.
    rows: usize,
    free: FreeVariables,
}

impl Walk {
    fn term(&mut self, term: Value<'_, '_>) {
        deep::level(|| match op_of(term) {
            Some(Op::Func) => self.func(term),
            Some(Op::Var) => {
                let id = Parts::of(term).args().next().and_then(var_id);
                self.free.ids.extend(id.filter(|id| !self.bound.contains(id)));
            }
            Some(Op::ImplicitVar) => self.free.row |= self.rows == 0,
            _ if is_datum(term) => {}
            _ => Parts::of(term).all().for_each(|part| self.term(part)),
        });
    }

    fn func(&mut self, func: Value<'_, '_>) {
        let params = params_of(func);
        let (known, is_row) = (self.bound.len(), is_row_of(&params).is_some());
        self.bound.extend(params);
        self.rows += usize::from(is_row);
        Parts::of(func).args().skip(1).for_each(|body| self.term(body));
        self.rows -= usize::from(is_row);
        self.bound.truncate(known);
    }
}
