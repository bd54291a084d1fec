//! The tree of a query after it was parsed and validated.

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
    /// A constant.
    Datum(Datum),
    /// A parameter of an enclosing function.
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
    /// Optional arguments, or the members of MAKE_OBJ, in the order of the query.
    pub optargs: Vec<(Text, Term)>,
    /// Properties of the whole subtree.
    pub traits: Traits,
    /// The path from the root of the query to INDEX_CREATE, which may store a function; `None` for other terms.
    pub path: Option<Arc<TermPath>>,
}

/// Properties of a term and everything below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Whether it contains an open term: one that accesses tables, the network or the current state of the cluster.
    pub open: bool,
    /// Whether one of its direct arguments is `r.args`, so that its arity is unknown until it runs.
    pub splices: bool,
}

/// A function: its parameters and its body.
#[derive(Debug)]
pub struct FuncTerm {
    /// The parameters.
    pub params: Vec<VarId>,
    pub body: Term,
    /// Variables of enclosing functions that the body uses.
    pub captures: Vec<VarId>,
    /// Whether the body is closed, so that the function can run inside a shard.
    pub closed: bool,
    /// Its path in its query, for backtraces. `None` at the root, and for functions that did not come with a query,
    /// such as index functions.
    pub path: Option<Arc<TermPath>>,
}

impl Term {
    /// Whether it contains an open term.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self {
            Term::Datum(_) | Term::Var(_) => false,
            Term::Func(func) => !func.closed,
            Term::Call(call) => call.traits.open,
        }
    }

    #[must_use]
    pub fn as_call(&self) -> Option<&Call> {
        match self {
            Term::Call(call) => Some(call),
            _ => None,
        }
    }
}

impl Call {
    /// A call, with its properties computed.
    #[must_use]
    pub fn new(op: Op, args: Vec<Term>, optargs: Vec<(Text, Term)>) -> Call {
        let open =
            op.is_open() || args.iter().any(Term::is_open) || optargs.iter().any(|(_, term)| term.is_open());
        let splices = args.iter().any(|arg| matches!(arg, Term::Call(call) if call.op == Op::Args));
        Call { op, args, optargs, traits: Traits { open, splices }, path: None }
    }

    /// The optional argument of this name, if present.
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
            path: self.path.clone(),
        })
    }
}

// A tree may have tens of thousands of levels: its parts are dropped from a list, not by recursion.

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
