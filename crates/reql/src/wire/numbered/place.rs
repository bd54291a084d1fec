//! Finds a term in a query: its number, and the functions around it.

use super::parts::{Parts, op_of, params_of};
use crate::backtrace::{Frame, TermPath};
use crate::signature::Op;
use crate::term::VarId;
use crate::wire::tape::Value;

/// The place of a term in its query.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// The number that RethinkDB gives to the term.
    pub number: u32,
    /// The parameters of the functions around it, outermost first.
    pub functions: Vec<Vec<VarId>>,
}

impl Place {
    /// The number of functions around the term that give `r.row` a meaning, and the parameter of the first of them.
    pub(crate) fn rows_around(&self) -> (u32, Option<VarId>) {
        let mut rows = self.functions.iter().filter_map(|params| is_row_of(params));
        let first = rows.next();
        (first.map_or(0, |_| 1 + rows.count() as u32), first)
    }
}

/// The parameter that `r.row` stands for in a function with these parameters: the only one, if a client named it.
pub(crate) fn is_row_of(params: &[VarId]) -> Option<VarId> {
    match params {
        [only] if only.0 >= 0 => Some(*only),
        _ => None,
    }
}

/// A term that was found.
#[derive(Clone)]
pub(super) struct Found<'t, 'a> {
    pub(super) term: Value<'t, 'a>,
    pub(super) place: Place,
}

impl<'t, 'a> Found<'t, 'a> {
    pub(super) fn root(term: Value<'t, 'a>) -> Found<'t, 'a> {
        Found { term, place: Place::default() }
    }

    /// The argument `frame` of the term.
    fn argument(mut self, frame: &Frame) -> Option<Found<'t, 'a>> {
        let parts = Parts::of(self.term);
        let args = parts.args().enumerate().map(|(i, arg)| (Frame::from(i) == *frame, arg));
        let optargs = parts.optargs().map(|(name, arg)| (Frame::from(name) == *frame, arg));
        let mut number = self.place.number.saturating_add(1);
        for (is_wanted, arg) in args.chain(optargs) {
            if is_wanted {
                if op_of(self.term) == Some(Op::Func) && *frame == Frame::Argument(1) {
                    self.place.functions.push(params_of(self.term));
                }
                self.place.number = number;
                return Some(Found { term: arg, ..self });
            }
            number = number.saturating_add(count(arg));
        }
        None
    }
}

/// The term at `path` below `root`.
pub(super) fn find<'t, 'a>(root: Value<'t, 'a>, path: &TermPath) -> Option<Found<'t, 'a>> {
    let mut frames: Vec<&Frame> = path.outwards().collect();
    frames.reverse();
    frames.into_iter().try_fold(Found::root(root), Found::argument)
}

/// The number of terms in a term, itself included.
pub(super) fn count(term: Value<'_, '_>) -> u32 {
    let mut waiting = vec![term];
    let mut count: u32 = 0;
    while let Some(term) = waiting.pop() {
        count = count.saturating_add(1);
        waiting.extend(Parts::of(term).all());
    }
    count
}
