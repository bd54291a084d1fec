//! A source of items and the steps they take. As long as only steps were added nothing has been
//! read, so that all of it can still be carried out where the rows are.

use std::collections::VecDeque;

use datum::{Array, Datum};
use reql::stream::{ArrayItems, Items};
use reql::{Env, EvalError};
use reql::{Flow, Transform};

use super::rows::RowSource;
use crate::context::Cx;

/// Where items come from.
pub(crate) enum Source {
    /// A range of a table that nobody reads yet.
    Rows(RowSource),
    /// Items that are pulled one by one.
    Items(Box<dyn Items>),
}

impl Source {
    /// Items that are at hand.
    pub fn of_array(items: Array) -> Source {
        Source::Items(Box::new(ArrayItems::new(items)))
    }
}

/// A source and the steps its items take.
pub(crate) struct Pipe {
    /// Where items come from.
    pub source: Source,
    /// What happens to them, in order.
    pub steps: Vec<Transform>,
}

impl Pipe {
    /// The items of a source as they are.
    pub fn of_source(source: Source) -> Pipe {
        Pipe { source, steps: Vec::new() }
    }

    /// Items that are made one by one.
    pub fn of_items(items: impl Items + 'static) -> Pipe {
        Pipe::of_source(Source::Items(Box::new(items)))
    }

    /// Items that are at hand.
    pub fn of_array(items: Array) -> Pipe {
        Pipe::of_source(Source::of_array(items))
    }

    /// One step more.
    pub fn then(mut self, step: Transform) -> Pipe {
        self.steps.push(step);
        self
    }

    /// Begins to read.
    pub fn open(self, cx: &Cx) -> Result<Box<dyn Items>, EvalError> {
        let items: Box<dyn Items> = match self.source {
            Source::Rows(rows) => rows.open(cx)?,
            Source::Items(items) => items,
        };
        if self.steps.is_empty() {
            return Ok(items);
        }
        Ok(Box::new(Piped { items, steps: self.steps, ready: VecDeque::new() }))
    }
}

/// The items of a source after the steps.
struct Piped {
    items: Box<dyn Items>,
    steps: Vec<Transform>,
    ready: VecDeque<Datum>,
}

impl Items for Piped {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            env.check_cancel()?;
            let Some(item) = self.items.next(env)? else { return Ok(None) };
            let ready = &mut self.ready;
            reql::run(&self.steps, item, env, &mut |item| {
                ready.push_back(item);
                Ok(Flow::Continue)
            })?;
        }
    }

    fn is_infinite(&self) -> bool {
        self.items.is_infinite()
    }
}
