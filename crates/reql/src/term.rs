//! The tree of a query after it was read from the wire and found legal.

use std::sync::Arc;

use datum::{Datum, Text};

use crate::backtrace::TermPath;
use crate::deep;
use crate::signature::Op;

/// The number a query gives to a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VarId(pub i64);

/// One node of a query.
#[derive(Clone, Debug)]
pub enum Term {
    /// A value known before anything runs.
    Datum(Datum),
    /// The argument of a function around this node.
    Var(VarId),
    /// A function.
    Func(Arc<FuncTerm>),
    /// A term with arguments.
    Call(Box<Call>),
}

/// A term with its arguments.
#[derive(Debug)]
pub struct Call {
    /// Which term.
    pub op: Op,
    /// Positional arguments, the value before the dot first.
    pub args: Vec<Term>,
    /// Optional arguments; for MAKE_OBJ the members. In the order of the query.
    pub optargs: Vec<(Text, Term)>,
    /// What is known of the whole subtree.
    pub traits: Traits,
}

/// What is known of a term and everything below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Something in it touches tables, the network or the present state of things.
    pub open: bool,
    /// One of its own arguments is `r.args`, so that arity is known only when it runs.
    pub splices: bool,
}

/// A function: what it is called with and what it answers.
#[derive(Debug)]
pub struct FuncTerm {
    /// The variables its arguments are bound to.
    pub params: Vec<VarId>,
    /// What it evaluates.
    pub body: Term,
    /// Variables of enclosing functions that the body uses.
    pub captures: Vec<VarId>,
    /// Whether the body uses only its arguments, so that the function can run inside a shard.
    pub closed: bool,
    /// Where it stands in the query it came with, for backtraces; nothing at the root, and for what
    /// came with no query, like the function of an index.
    pub path: Option<Arc<TermPath>>,
}

impl Term {
    /// Whether something in it touches tables, the network or the present state of things.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self {
            Term::Datum(_) | Term::Var(_) => false,
            Term::Func(func) => !func.closed,
            Term::Call(call) => call.traits.open,
        }
    }

    /// The call, if it is one.
    #[must_use]
    pub fn as_call(&self) -> Option<&Call> {
        match self {
            Term::Call(call) => Some(call),
            _ => None,
        }
    }
}

impl Call {
    /// A call, with what can be known of it.
    #[must_use]
    pub fn new(op: Op, args: Vec<Term>, optargs: Vec<(Text, Term)>) -> Call {
        let open =
            op.is_open() || args.iter().any(Term::is_open) || optargs.iter().any(|(_, term)| term.is_open());
        let splices = args.iter().any(|arg| matches!(arg, Term::Call(call) if call.op == Op::Args));
        Call { op, args, optargs, traits: Traits { open, splices } }
    }

    /// The optional argument of this name, if the query gives it.
    #[must_use]
    pub fn optarg(&self, name: &str) -> Option<&Term> {
        self.optargs.iter().find(|(key, _)| key == name).map(|(_, term)| term)
    }
}

impl Clone for Call {
    fn clone(&self) -> Self {
        deep::level(|| Call {
            op: self.op,
            args: self.args.clone(),
            optargs: self.optargs.clone(),
            traits: self.traits,
        })
    }
}

// A tree may be tens of thousands of levels deep: its parts are dropped from a list, not by
// recursion.

impl Drop for Call {
    fn drop(&mut self) {
        if self.args.iter().any(is_nested) || self.optargs.iter().any(|(_, term)| is_nested(term)) {
            let mut waiting = Vec::new();
            self.move_into(&mut waiting);
            drop_all(waiting);
        }
    }
}

impl Drop for FuncTerm {
    fn drop(&mut self) {
        if is_nested(&self.body) {
            drop_all(vec![self.take_body()]);
        }
    }
}

impl Call {
    fn move_into(&mut self, waiting: &mut Vec<Term>) {
        waiting.append(&mut self.args);
        waiting.extend(std::mem::take(&mut self.optargs).into_iter().map(|(_, term)| term));
    }
}

impl FuncTerm {
    fn take_body(&mut self) -> Term {
        std::mem::replace(&mut self.body, Term::Datum(Datum::Null))
    }
}

fn drop_all(mut waiting: Vec<Term>) {
    while let Some(term) = waiting.pop() {
        match term {
            Term::Call(mut call) => call.move_into(&mut waiting),
            Term::Func(func) => waiting.extend(Arc::into_inner(func).map(|mut func| func.take_body())),
            Term::Datum(_) | Term::Var(_) => {}
        }
    }
}

fn is_nested(term: &Term) -> bool {
    matches!(term, Term::Call(_) | Term::Func(_))
}
