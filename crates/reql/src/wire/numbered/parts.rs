//! The parts of a term in wire form.

use crate::signature::{self, Op};
use crate::term::VarId;
use crate::wire::compile::var_id;
use crate::wire::tape::{Node, Value};

/// The arguments of a term in wire form.
#[derive(Clone, Copy, Default)]
pub(super) struct Parts<'t, 'a> {
    args: Option<Value<'t, 'a>>,
    optargs: Option<Value<'t, 'a>>,
}

impl<'t, 'a> Parts<'t, 'a> {
    /// The parts as RethinkDB visits them: an array in an explicit datum has terms, an object there has none.
    pub(super) fn of(term: Value<'t, 'a>) -> Parts<'t, 'a> {
        let Some(mut items) = term.items() else {
            return Parts { optargs: Some(term), ..Parts::default() };
        };
        items.next();
        let mut from_second = items;
        let args = from_second.next().filter(|part| matches!(part.node(), Node::Array(_)));
        let optargs = items.find(|part| matches!(part.node(), Node::Object(_)) && !is_datum(term));
        Parts { args, optargs }
    }

    /// The positional arguments.
    pub(super) fn args(self) -> impl Iterator<Item = Value<'t, 'a>> {
        self.args.and_then(Value::items).into_iter().flatten()
    }

    /// The optional arguments, or the members of an object.
    pub(super) fn optargs(self) -> impl Iterator<Item = (&'t str, Value<'t, 'a>)> {
        let members = self.optargs.and_then(Value::members).into_iter().flatten();
        members.map(|(name, value)| (&**name, value))
    }

    /// All arguments, in the order in which RethinkDB visits them.
    pub(super) fn all(self) -> impl Iterator<Item = Value<'t, 'a>> {
        self.args().chain(self.optargs().map(|(_, value)| value))
    }
}

/// The term's operation; `None` for values and objects.
pub(super) fn op_of(term: Value<'_, '_>) -> Option<Op> {
    match term.items()?.next()?.node() {
        Node::Number(id, _) if id.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(id) => {
            signature::by_id(*id as u32)
        }
        _ => None,
    }
}

/// Whether the term is an explicit datum: `[1, value]`.
pub(super) fn is_datum(term: Value<'_, '_>) -> bool {
    op_of(term) == Some(Op::Datum)
}

/// The parameters of a function.
pub(super) fn params_of(func: Value<'_, '_>) -> Vec<VarId> {
    let declared = Parts::of(func).args().next();
    declared.into_iter().flat_map(|declared| Parts::of(declared).args()).filter_map(var_id).collect()
}
