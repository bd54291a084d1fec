//! A function together with the variables it captured.

use std::sync::Arc;

use datum::Datum;

use crate::env::{Env, Foreign};
use crate::error::EvalError;
use crate::items::Items;
use crate::term::{Call, FuncTerm, Term, VarId};

/// Evaluates a closure's body once its arguments were counted. The evaluator puts itself here
/// when it makes a closure, so that terms can call functions without knowing the evaluator.
#[derive(Clone, Copy)]
pub enum Run {
    /// To a datum.
    ToDatum(fn(&Closure, &[Datum], &Env<'_>) -> Result<Datum, EvalError>),
    /// To a datum or a sequence.
    ToSequence(fn(&Closure, &[Datum], &Env<'_>) -> Result<Answered, EvalError>),
}

/// What a function answered that may answer a sequence.
pub enum Answered {
    /// A datum.
    Datum(Datum),
    /// Items that are made when they are asked for.
    Items(Box<dyn Items>),
}

/// What the body of a function may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A datum.
    Datum,
    /// A datum that may hold literals: it will be merged into something.
    Literals,
    /// A datum or a sequence: what `concat_map` wants.
    Sequence,
    /// What [`Answer::Literals`] says, of an argument that is evaluated for each item: no function stands there in the
    /// query.
    Argument,
    /// What [`Answer::Argument`] says, where a function may stand, which is called then.
    Constant,
}

/// A function that can be called with datums.
#[derive(Clone)]
pub struct Closure {
    /// Its parameters and body; of a foreign function, a body that stands for it.
    pub func: Arc<FuncTerm>,
    /// The variables of enclosing functions that the body uses.
    pub captured: Arc<[(VarId, Datum)]>,
    /// What its body may answer, which decided on who evaluates it.
    pub answer: Answer,
    code: Code,
}

/// Who evaluates a closure.
#[derive(Clone)]
enum Code {
    Terms(Run),
    Foreign(Arc<dyn Foreign>),
}

impl Closure {
    /// A closure that `run` evaluates, as `answer` asks.
    #[must_use]
    pub fn new(func: Arc<FuncTerm>, captured: Arc<[(VarId, Datum)]>, answer: Answer, run: Run) -> Self {
        Closure { func, captured, answer, code: Code::Terms(run) }
    }

    /// A function that `call`, a term of the open language, answered.
    #[must_use]
    pub fn foreign(call: Call, code: Arc<dyn Foreign>) -> Self {
        let body = Term::Call(Box::new(call));
        let func = FuncTerm { params: Vec::new(), body, captures: Vec::new(), closed: false, way: None };
        let (func, captured) = (Arc::new(func), Arc::default());
        Closure { func, captured, answer: Answer::Datum, code: Code::Foreign(code) }
    }

    /// The foreign function that this is, if it is one.
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
        check_arity(self.arity(), count)
    }

    /// The datum the function answers.
    pub fn call(&self, values: &[Datum], env: &Env<'_>) -> Result<Datum, EvalError> {
        self.check_arity(values.len())?;
        match &self.code {
            Code::Terms(Run::ToDatum(run)) => {
                run(self, values, env).map_err(|error| error.anchored(self.func.way.as_ref()))
            }
            Code::Terms(Run::ToSequence(_)) => match self.call_for_items(values, env)? {
                Answered::Datum(answer) => Ok(answer),
                Answered::Items(_) => Err(EvalError::internal("a sequence where a datum is wanted")),
            },
            Code::Foreign(code) => code.call(values, env),
        }
    }

    /// What the function answers, which may be a sequence when it was made to answer one.
    pub fn call_for_items(&self, values: &[Datum], env: &Env<'_>) -> Result<Answered, EvalError> {
        let Code::Terms(Run::ToSequence(run)) = &self.code else {
            return self.call(values, env).map(Answered::Datum);
        };
        self.check_arity(values.len())?;
        match run(self, values, env).map_err(|error| error.anchored(self.func.way.as_ref()))? {
            Answered::Items(items) => {
                Ok(Answered::Items(Box::new(Returned { items, func: self.func.clone() })))
            }
            datum => Ok(datum),
        }
    }

    /// Calls a predicate: whether its answer counts as true.
    pub fn test(&self, values: &[Datum], env: &Env<'_>) -> Result<bool, EvalError> {
        Ok(self.call(values, env)?.is_truthy())
    }
}

/// Items that a function returned: what goes wrong in them goes wrong in its body.
struct Returned {
    items: Box<dyn Items>,
    func: Arc<FuncTerm>,
}

impl Items for Returned {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        self.items.next(env).map_err(|error| error.at(1).anchored(self.func.way.as_ref()))
    }

    fn is_infinite(&self) -> bool {
        self.items.is_infinite()
    }
}

/// Fails unless a function with `declared` parameters can be called with `count` arguments. One
/// without parameters can be called with any number. That is told of the function's body. Source: func.cc of RethinkDB.
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
