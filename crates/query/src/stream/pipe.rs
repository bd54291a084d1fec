//! Pipes: a source of items and the steps they take. Nothing is read while steps are added, so that all of them can
//! still run where the rows are.

use cluster::IndexConfig;
use datum::{Array, Datum};
use reql::stream::{ArrayItems, Items};
use reql::{Env, ErrorClass, EvalError, Transform};

use super::bucketed_rows::BucketedSteps;
use super::interleave::Interleaved;
use super::keys::KeySource;
use super::plan;
use super::plan::OrderSeen;
use super::rows::RowSource;
use super::steps::stepped;
use crate::context::Cx;

/// A source of items.
pub(crate) enum Source {
    /// A range of a table that is not read yet.
    Rows(RowSource),
    /// Rows under some primary keys, in no order.
    Keys(Box<KeySource>),
    /// Items that are pulled one by one.
    Items(Box<dyn Items>),
}

impl Source {
    /// Items in memory.
    pub fn of_array(items: Array) -> Source {
        Source::Items(Box::new(ArrayItems::new(items)))
    }

    /// Rows that cannot be read: `error` is raised once something reads them.
    pub fn failing(error: EvalError) -> Source {
        Source::Items(Box::new(Failing(error)))
    }

    /// The same rows, for a query that relies on the definition of `index`.
    pub fn relying_on(self, index: Option<IndexConfig>) -> Source {
        match self {
            Source::Rows(rows) => Source::Rows(rows.relying_on(index)),
            other => other,
        }
    }
}

/// Items that fail to be read.
struct Failing(EvalError);

impl Items for Failing {
    fn next(&mut self, _env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        Err(self.0.clone())
    }
}

/// A source and the steps that its items take.
pub(crate) struct Pipe {
    pub source: Source,
    pub steps: Vec<Transform>,
}

impl Pipe {
    /// The items of a source without steps.
    pub fn of_source(source: Source) -> Pipe {
        Pipe { source, steps: Vec::new() }
    }

    /// The same rows, read to be written.
    #[must_use]
    pub fn into_write(self) -> Pipe {
        match self.source {
            Source::Rows(rows) => {
                Pipe { source: Source::Rows(RowSource { is_to_write: true, ..rows }), ..self }
            }
            _ => self,
        }
    }

    /// Items that are pulled one by one.
    pub fn of_items(items: impl Items + 'static) -> Pipe {
        Pipe::of_source(Source::Items(Box::new(items)))
    }

    /// Items in memory.
    pub fn of_array(items: Array) -> Pipe {
        Pipe::of_source(Source::of_array(items))
    }

    /// Whether it is known without reading that there are no items.
    pub fn is_exhausted(&self) -> bool {
        match &self.source {
            Source::Rows(rows) => rows.names_nothing(),
            Source::Keys(keys) => keys.is_exhausted(),
            Source::Items(items) => items.is_exhausted(),
        }
    }

    /// Adds a step.
    pub fn then(mut self, step: Transform) -> Pipe {
        self.steps.push(step);
        self
    }

    /// Starts reading; the caller takes no more than `most` items.
    pub fn open_first(self, cx: &Cx, most: usize) -> Result<Box<dyn Items>, EvalError> {
        match self.source {
            Source::Rows(rows) if self.steps.is_empty() => {
                Pipe::of_source(Source::Rows(RowSource { most: Some(most), ..rows })).open(cx)
            }
            source => Pipe { source, ..self }.open(cx),
        }
    }

    /// Starts reading.
    pub fn open(self, cx: &Cx) -> Result<Box<dyn Items>, EvalError> {
        let mut steps = self.steps;
        match self.source {
            Source::Rows(rows) => {
                // Closed steps run where the rows are.
                let closed = steps.iter().take_while(|step| step.is_closed()).count();
                let later = steps.split_off(closed);
                let found = plan::found(cx, &rows, &steps, OrderSeen::Yes);
                if let Some(trace) = cx.trace_room() {
                    let names =
                        |steps: &[Transform]| steps.iter().map(|step| step.name().to_owned()).collect();
                    trace.read(found.as_ref().unwrap_or(&rows).note(cx, names(&steps)));
                    later.iter().for_each(|step| trace.at_top(step.name()));
                }
                match found.map(|found| found.open_stepped(cx, steps.clone(), later.clone())) {
                    // The plan chose the index and not the query, so the rows can be found without it.
                    Some(Err(error)) if error.class() == ErrorClass::OpFailed => {
                        rows.open_stepped(cx, steps, later)
                    }
                    Some(opened) => opened,
                    None => rows.open_stepped(cx, steps, later),
                }
            }
            Source::Keys(keys) => Ok(Box::new(Interleaved::new(Box::new(BucketedSteps::new(*keys, steps))))),
            Source::Items(items) => Ok(stepped(items, steps)),
        }
    }
}
