//! A function with the variables it captured.

use std::sync::Arc;

use datum::Datum;

use crate::env::{Env, Foreign};
use crate::error::EvalError;
use crate::items::{Endless, Items};
use crate::term::{Call, FuncTerm, Term, VarId};

/// Evaluates the body of a closure after its arguments were counted. The evaluator sets this when it makes a
/// closure, so that terms can call functions without depending on the evaluator.
#[derive(Clone, Copy)]
pub enum Evaluate {
    ToDatum(fn(&Closure, &[Datum], &Env<'_>) -> Result<Datum, EvalError>),
    ToSequence(fn(&Closure, &[Datum], &Env<'_>) -> Result<CallResult, EvalError>),
}

/// The result of a function that may return a sequence.
pub enum CallResult {
    Datum(Datum),
    /// A stream of items.
    Items(Box<dyn Items>),
}

/// The kind of result that the body of a function may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    Datum,
    /// A datum that may contain literals, because it will be merged into something.
    Literals,
    /// A datum or a sequence, as `concat_map` needs it.
    Sequence,
    /// Like [`ResultKind::Literals`], for an argument that is evaluated for each item: the query contains no
    /// function there.
    Argument,
    /// Like [`ResultKind::Argument`], but if the argument evaluates to a function, that is called.
    Constant,
}

/// A function that can be called with datums.
#[derive(Clone)]
pub struct Closure {
    /// Its parameters and body. A foreign function has a placeholder as its body.
    pub func: Arc<FuncTerm>,
    /// The variables of enclosing functions that the body uses.
    pub captured: Arc<[(VarId, Datum)]>,
    /// What its body may return, which determines how it is evaluated.
    pub result: ResultKind,
    code: Code,
}

/// How a closure is evaluated.
#[derive(Clone)]
enum Code {
    Terms(Evaluate),
    Foreign(Arc<dyn Foreign>),
}

impl Closure {
    /// A closure that is evaluated by `run`, which must match `result`.
    #[must_use]
    pub fn new(
        func: Arc<FuncTerm>,
        captured: Arc<[(VarId, Datum)]>,
        result: ResultKind,
        run: Evaluate,
    ) -> Self {
        Closure { func, captured, result, code: Code::Terms(run) }
    }

    /// A foreign function, the value of the open term `call`.
    #[must_use]
    pub fn foreign(call: Call, code: Arc<dyn Foreign>) -> Self {
        let body = Term::Call(Box::new(call));
        let func = FuncTerm { params: Vec::new(), body, captures: Vec::new(), closed: false, path: None };
        let (func, captured) = (Arc::new(func), Arc::default());
        Closure { func, captured, result: ResultKind::Datum, code: Code::Foreign(code) }
    }

    /// The foreign function, if this is one.
    #[must_use]
    pub fn as_foreign(&self) -> Option<&Arc<dyn Foreign>> {
        match &self.code {
            Code::Terms(_) => None,
            Code::Foreign(code) => Some(code),
        }
    }

    /// The number of declared parameters.
    #[must_use]
    pub fn arity(&self) -> usize {
        self.func.params.len()
    }

    /// Fails unless the function can be called with `count` arguments.
    pub fn check_arity(&self, count: usize) -> Result<(), EvalError> {
        check_arity(self.arity(), count).map_err(|error| error.anchored(self.func.path.as_ref()))
    }

    /// An error about the function as a whole, which belongs to its body; a foreign function has none. Source: func.cc of RethinkDB.
    #[must_use]
    pub fn at_body(&self, error: EvalError) -> EvalError {
        match &self.code {
            Code::Terms(_) => error.at(1).anchored(self.func.path.as_ref()),
            Code::Foreign(_) => error,
        }
    }

    /// An error about the value that the function returned to a term, whose argument `argument` it is: RethinkDB takes one frame
    /// away from the place of the body.
    #[must_use]
    pub fn at_result(&self, error: EvalError, argument: usize) -> EvalError {
        match &self.code {
            Code::Terms(_) => error.anchored(self.func.path.as_ref()).at(argument),
            Code::Foreign(_) => error,
        }
    }

    /// Calls the function and returns its datum.
    pub fn call(&self, values: &[Datum], env: &Env<'_>) -> Result<Datum, EvalError> {
        self.check_arity(values.len())?;
        match &self.code {
            Code::Terms(Evaluate::ToDatum(run)) => {
                run(self, values, env).map_err(|error| error.anchored(self.func.path.as_ref()))
            }
            Code::Terms(Evaluate::ToSequence(_)) => match self.call_for_items(values, env)? {
                CallResult::Datum(answer) => Ok(answer),
                CallResult::Items(_) => Err(EvalError::internal("a sequence where a datum is wanted")),
            },
            Code::Foreign(code) => code.call(values, env),
        }
    }

    /// Calls the function. Returns a sequence if the body returned one and may.
    pub fn call_for_items(&self, values: &[Datum], env: &Env<'_>) -> Result<CallResult, EvalError> {
        let Code::Terms(Evaluate::ToSequence(run)) = &self.code else {
            return self.call(values, env).map(CallResult::Datum);
        };
        self.check_arity(values.len())?;
        match run(self, values, env).map_err(|error| error.anchored(self.func.path.as_ref()))? {
            CallResult::Items(items) => {
                Ok(CallResult::Items(Box::new(Returned { items, func: self.func.clone() })))
            }
            datum => Ok(datum),
        }
    }

    /// Calls a predicate and returns whether its result is truthy.
    pub fn test(&self, values: &[Datum], env: &Env<'_>) -> Result<bool, EvalError> {
        Ok(self.call(values, env)?.is_truthy())
    }
}

/// The items that a function returned. Errors in them are errors in its body.
struct Returned {
    items: Box<dyn Items>,
    func: Arc<FuncTerm>,
}

impl Items for Returned {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        self.items.next(env).map_err(|error| error.at(1).anchored(self.func.path.as_ref()))
    }

    fn endless(&self) -> Option<Endless> {
        self.items.endless()
    }
}

/// Fails unless a function with `declared` parameters can be called with `count` arguments. A function without
/// parameters accepts any number. The error belongs to the function's body. Source: func.cc of RethinkDB.
pub fn check_arity(declared: usize, count: usize) -> Result<(), EvalError> {
    if declared == 0 || declared == count {
        return Ok(());
    }
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    Err(EvalError::logic(format!(
        "Expected function with {count} argument{} but found function with {declared} argument{}.",
        plural(count),
        plural(declared),
    ))
    .at(1))
}

impl std::fmt::Debug for Closure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Closure")
            .field("func", &self.func)
            .field("captured", &self.captured)
            .finish_non_exhaustive()
    }
}
