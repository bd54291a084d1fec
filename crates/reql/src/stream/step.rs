//! Streams that process items one at a time: transformed, zipped from several, offsets.

use datum::{Array, Datum};

use super::{Endless, Items};
use crate::closure::Closure;
use crate::env::Env;
use crate::error::EvalError;
use crate::select::Predicate;
use crate::transform::{Emitted, ItemStream, Transform};

/// The stream of items that a step emits for the items of another stream.
pub struct Stepped<I> {
    items: I,
    step: Transform,
    /// Items emitted for one item, and the number of them returned so far.
    many: (Array, usize),
    /// The rest of a stream emitted for one item.
    part: Option<ItemStream>,
}

impl<I: Items> Stepped<I> {
    /// Applies `step` to `items`.
    pub fn new(items: I, step: Transform) -> Self {
        Stepped { items, step, many: (Array::default(), 0), part: None }
    }
}

impl<I: Items> Items for Stepped<I> {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            let (many, at) = &mut self.many;
            if let Some(item) = many.get(*at) {
                *at += 1;
                return Ok(Some(item.clone()));
            }
            env.check_cancel()?;
            if let Some(part) = &mut self.part {
                match part.next(env)? {
                    Some(item) => return Ok(Some(item)),
                    None => self.part = None,
                }
            }
            let Some(item) = self.items.next(env)? else { return Ok(None) };
            match self.step.step(item, env)? {
                Emitted::None => {}
                Emitted::One(item) => return Ok(Some(item)),
                Emitted::Many(items) => self.many = (items, 0),
                Emitted::Stream(part) => self.part = Some(part),
            }
        }
    }

    fn endless(&self) -> Option<Endless> {
        self.items.endless()
    }

    fn is_immediate(&self) -> bool {
        self.items.is_immediate() && self.step.is_brief()
    }

    fn is_exhausted(&self) -> bool {
        self.part.is_none() && self.many.1 >= self.many.0.len() && self.items.is_exhausted()
    }
}

/// `map` over several streams at once; ends with the shortest.
pub struct Zipped {
    inputs: Vec<Box<dyn Items>>,
    closure: Closure,
    /// The items of the first inputs that were read for the next call.
    values: Vec<Datum>,
}

impl Zipped {
    /// Calls `closure` with one item of each input. Fails if it takes another number of arguments.
    pub fn new(inputs: Vec<Box<dyn Items>>, closure: Closure) -> Result<Self, EvalError> {
        check_map_arity(&closure, inputs.len())?;
        Ok(Zipped { inputs, closure, values: Vec::new() })
    }
}

/// Fails unless the function of a `map` over `sequences` sequences takes that many arguments.
pub fn check_map_arity(closure: &Closure, sequences: usize) -> Result<(), EvalError> {
    let declared = closure.arity();
    if declared == 0 || declared == sequences {
        return Ok(());
    }
    let arguments = if declared == 1 { "argument" } else { "arguments" };
    let found = if sequences == 1 { "sequence was" } else { "sequences were" };
    Err(EvalError::logic(format!(
        "The function passed to `map` expects {declared} {arguments}, but {sequences} {found} found."
    )))
}

impl Items for Zipped {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        env.check_cancel()?;
        // Items that were read stay when a later input has none yet.
        while let Some(input) = self.inputs.get_mut(self.values.len()) {
            match input.next(env)? {
                Some(item) => self.values.push(item),
                None => return Ok(None),
            }
        }
        let values = std::mem::take(&mut self.values);
        let position = self.inputs.len();
        self.closure.call(&values, env).map(Some).map_err(|error| error.at(position))
    }

    fn endless(&self) -> Option<Endless> {
        self.inputs.iter().map(Items::endless).min_by_key(Option::is_some).flatten()
    }

    fn is_exhausted(&self) -> bool {
        self.inputs.iter().any(Items::is_exhausted)
    }
}

/// `offsets_of`: the positions of the items for which a predicate holds.
pub struct Offsets<I> {
    items: I,
    predicate: Predicate,
    position: u64,
}

impl<I: Items> Offsets<I> {
    /// The positions in `items`, counted from 0.
    pub fn new(items: I, predicate: Predicate) -> Self {
        Offsets { items, predicate, position: 0 }
    }
}

impl<I: Items> Items for Offsets<I> {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        while let Some(item) = self.items.next(env)? {
            env.check_cancel()?;
            let position = self.position;
            self.position += 1;
            if self.predicate.test(&item, env).map_err(|error| error.at(1))? {
                return Ok(Some(Datum::Number(position as f64)));
            }
        }
        Ok(None)
    }

    fn endless(&self) -> Option<Endless> {
        self.items.endless()
    }

    fn is_exhausted(&self) -> bool {
        self.items.is_exhausted()
    }
}
