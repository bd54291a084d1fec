//! `fold`: passes items from left to right through an accumulator.

use datum::{Array, Datum};

use super::{Endless, Items};
use crate::closure::Closure;
use crate::env::Env;
use crate::error::EvalError;

/// The functions of a `fold`.
#[derive(Clone, Debug)]
pub struct Fold {
    /// The accumulator before the first item.
    pub base: Datum,
    /// Computes the next accumulator from the accumulator and an item.
    pub next: Closure,
    /// Computes the items to emit for each item; without it the result is the last accumulator.
    pub emit: Option<Closure>,
    /// Computes the result from the last accumulator or, with `emit`, the items to emit after the last item.
    pub final_emit: Option<Closure>,
}

/// The result of a fold. There is one per query, so its size does not matter.
#[expect(clippy::large_enum_variant)]
pub enum Emit {
    /// A single value: without `emit`.
    Value(Datum),
    /// A stream of the items that `emit` returns.
    Stream(Folded),
}

impl Fold {
    /// Fails unless the accumulator's function takes the right number of arguments. The other functions are checked
    /// when they are called. Source: `fold_term_t` in terms/seq.cc of RethinkDB 2.4.
    pub fn check_arity(&self) -> Result<(), EvalError> {
        match self.next.arity() {
            0 | 2 => Ok(()),
            _ => Err(EvalError::logic("The accumulator function passed to `fold` should expect 2 arguments")),
        }
    }

    /// Whether all its functions can run inside a shard.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let closed = |closure: &Closure| closure.func.closed;
        closed(&self.next)
            && self.emit.as_ref().is_none_or(closed)
            && self.final_emit.as_ref().is_none_or(closed)
    }

    /// Folds `items`; immediately if there is no `emit`.
    pub fn over(self, mut items: Box<dyn Items>, env: &Env<'_>) -> Result<Emit, EvalError> {
        self.check_arity()?;
        if self.emit.is_some() {
            return Ok(Emit::Stream(Folded {
                items,
                accumulator: self.base.clone(),
                fold: self,
                many: (Array::default(), 0),
                done: false,
            }));
        }
        if let Some(endless) = items.endless() {
            return Err(endless.error());
        }
        let mut accumulator = self.base;
        while let Some(item) = items.next(env)? {
            env.check_cancel()?;
            accumulator = self.next.call(&[accumulator, item], env).map_err(|e| e.at(2))?;
        }
        match &self.final_emit {
            Some(last) => last.call(&[accumulator], env).map(Emit::Value),
            None => Ok(Emit::Value(accumulator)),
        }
        .map_err(|error| error.at("final_emit"))
    }
}

/// The stream of items that `emit` returns.
pub struct Folded {
    items: Box<dyn Items>,
    fold: Fold,
    accumulator: Datum,
    /// Items of one result, and the number of them emitted so far.
    many: (Array, usize),
    done: bool,
}

impl Folded {
    /// Takes the next item, or ends after the last one. `None` if there is nothing left to emit.
    fn step(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        if let Some(item) = self.items.next(env)? {
            let next = self
                .fold
                .next
                .call(&[self.accumulator.clone(), item.clone()], env)
                .map_err(|error| error.at(2))?;
            let before = std::mem::replace(&mut self.accumulator, next);
            let values = [before, item, self.accumulator.clone()];
            let emitted = self.fold.emit.as_ref().map(|emit| emit.call(&values, env));
            return emitted.transpose().map_err(|error| error.at("emit"));
        }
        self.done = true;
        let last = self.fold.final_emit.as_ref();
        let emitted = last.map(|last| last.call(std::slice::from_ref(&self.accumulator), env));
        emitted.transpose().map_err(|error| error.at("final_emit"))
    }
}

impl Items for Folded {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            let (many, at) = &mut self.many;
            if let Some(item) = many.get(*at) {
                *at += 1;
                return Ok(Some(item.clone()));
            }
            if self.done {
                return Ok(None);
            }
            env.check_cancel()?;
            match self.step(env)? {
                None => {}
                Some(Datum::Array(items)) => self.many = (items, 0),
                Some(other) => return Err(EvalError::type_error("ARRAY", &other)),
            }
        }
    }

    fn endless(&self) -> Option<Endless> {
        self.items.endless()
    }

    fn is_exhausted(&self) -> bool {
        self.many.1 >= self.many.0.len() && self.items.is_exhausted()
    }
}
