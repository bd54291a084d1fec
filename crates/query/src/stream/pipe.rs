//! A source of items and the steps they take. As long as only steps were added nothing has been
//! read, so that all of it can still be carried out where the rows are.

use datum::Array;
use reql::stream::{ArrayItems, Items};
use reql::{EvalError, Transform};

use super::rows::RowSource;
use super::steps::stepped;
use crate::context::Cx;
use crate::far::Patience;

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
        let mut steps = self.steps;
        let items: Box<dyn Items> = match self.source {
            Source::Rows(rows) => {
                // Closed steps are taken where the rows are.
                let closed = steps.iter().take_while(|step| step.is_closed()).count();
                let later = steps.split_off(closed);
                rows.open_stepped(cx, std::mem::replace(&mut steps, later), Patience::new())?
            }
            Source::Items(items) => items,
        };
        Ok(stepped(items, steps))
    }
}
