//! The steps between a row and the values that a feed is about.

use datum::{Datum, Text};
use reql::codec::{Codec, Packer};
use reql::cost::{self, Cost};
use reql::purity::{self, Determinism};
use reql::{Closure, ErrorClass, EvalError, Flow, GroupBy, Pipeline, Selector, Terminal, Transform};
use shard::Bounds;

use crate::context::Cx;
use crate::stream::condition;

/// The steps between a row and the values that a feed is about.
pub(crate) struct RowSteps {
    steps: Vec<Transform>,
    are_bounded: bool,
}

impl RowSteps {
    /// Steps that leave at most one value of a row. Fails if a change cannot be followed through one of them.
    pub fn of_one(steps: Vec<Transform>) -> Result<RowSteps, EvalError> {
        match steps.iter().find(|step| matches!(step, Transform::ConcatMap(_))) {
            Some(step) => Err(EvalError::logic(format!("Cannot call `changes` after `{}`.", step.name()))),
            None => RowSteps::of_many(steps),
        }
    }

    /// Steps that may leave several values of a row. Fails if a change cannot be followed through one of them.
    pub fn of_many(steps: Vec<Transform>) -> Result<RowSteps, EvalError> {
        check_functions(steps.iter().flat_map(Transform::functions))?;
        let is_bounded = |closure: &Closure| cost::of_func(&closure.func) == Cost::Brief;
        let are_bounded = steps.iter().flat_map(Transform::functions).all(is_bounded);
        Ok(RowSteps { steps, are_bounded })
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether none of them takes long: see [`Transform::is_brief`].
    pub fn are_brief(&self) -> bool {
        self.steps.iter().all(Transform::is_brief)
    }

    /// Whether the time that they take for a row has a known bound. Others may not be applied on a thread that serves many feeds.
    pub fn are_bounded(&self) -> bool {
        self.are_bounded
    }

    /// The value of a row; `None` if there is no row, or a step leaves nothing of it. A step that fails leaves nothing, except that a
    /// lack of memory is an error. Source: `apply_ops` in rdb_protocol/changefeed.cc of RethinkDB.
    pub fn value(&self, cx: &Cx, row: Option<Datum>) -> Result<Option<Datum>, EvalError> {
        match row {
            // A null counts as nothing. Source: the same.
            Some(row) if !self.steps.is_empty() => {
                Ok(self.values(cx, row)?.pop().filter(|value| *value != Datum::Null))
            }
            row => Ok(row),
        }
    }

    /// Whether an item passes the filters with which the steps begin. If not, they leave nothing of it. Fails for lack of memory.
    pub fn admit(&self, cx: &Cx, item: Datum) -> Result<bool, EvalError> {
        let mut is_admitted = false;
        let run = reql::run(self.filters(), item, &cx.closed_env(), &mut |_| {
            is_admitted = true;
            Ok(Flow::Continue)
        });
        Ok(unless_failed(run)?.is_some() && is_admitted)
    }

    /// Whether the steps begin with a filter.
    pub fn begin_with_filter(&self) -> bool {
        !self.filters().is_empty()
    }

    /// A field and the bounds within which its value is in all rows of which the steps leave something.
    pub fn condition(&self) -> Option<(Text, Bounds)> {
        condition(&self.steps)
    }

    /// The filters with which the steps begin.
    fn filters(&self) -> &[Transform] {
        let is_other = |step: &Transform| !matches!(step, Transform::Filter(_));
        let count = self.steps.iter().position(is_other).unwrap_or(self.steps.len());
        self.steps.get(..count).unwrap_or_default()
    }

    /// The values of an item. None if a step fails; a lack of memory is an error.
    pub fn values(&self, cx: &Cx, item: Datum) -> Result<Vec<Datum>, EvalError> {
        let mut values = Vec::new();
        let run = reql::run(&self.steps, item, &cx.closed_env(), &mut |value| {
            values.push(value);
            Ok(Flow::Continue)
        });
        Ok(unless_failed(run)?.map_or_else(Vec::new, |_| values))
    }

    /// Adds bytes that tell these steps from others.
    pub fn add_to_digest(&self, bytes: &mut Vec<u8>) -> Result<(), EvalError> {
        let mut packer = Packer::for_digest();
        packer.list(self.steps.iter());
        add_packed(bytes, packer)
    }
}

/// `None` instead of an error that a row is to blame for. Others, such as a lack of memory, must not make rows disappear.
pub(super) fn unless_failed<T>(result: Result<T, EvalError>) -> Result<Option<T>, EvalError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.class() {
            ErrorClass::QueryLogic | ErrorClass::NonExistence | ErrorClass::User => Ok(None),
            _ => Err(error),
        },
    }
}

/// Adds bytes that tell this pipeline from others.
pub(super) fn add_pipeline(bytes: &mut Vec<u8>, pipeline: &Pipeline) -> Result<(), EvalError> {
    let mut packer = Packer::for_digest();
    pipeline.pack(&mut packer);
    add_packed(bytes, packer)
}

/// Adds bytes that tell this selector from others.
pub(super) fn add_selector(bytes: &mut Vec<u8>, selector: &Selector) -> Result<(), EvalError> {
    let group = Some(GroupBy { selectors: vec![selector.clone()], multi: false });
    let (steps, grouped_steps) = (Vec::new(), Vec::new());
    add_pipeline(bytes, &Pipeline { steps, group, grouped_steps, terminal: Terminal::Count })
}

fn add_packed(bytes: &mut Vec<u8>, packer: Packer) -> Result<(), EvalError> {
    bytes.extend_from_slice(&packer.finish().map_err(|error| error.error("the terms of a feed"))?);
    Ok(())
}

/// The selectors of the groups and of the terminal of a pipeline.
fn selectors(pipeline: &Pipeline) -> impl Iterator<Item = &Selector> {
    let own = match &pipeline.terminal {
        Terminal::Sum(selector)
        | Terminal::Avg(selector)
        | Terminal::Min(selector)
        | Terminal::Max(selector) => selector.as_ref(),
        _ => None,
    };
    pipeline.group.iter().flat_map(|by| &by.selectors).chain(own)
}

/// Whether a pipeline calls functions of the query.
pub(super) fn calls_functions(pipeline: &Pipeline) -> bool {
    selectors(pipeline).any(is_function) || !pipeline.grouped_steps.iter().all(Transform::is_brief)
}

pub(super) fn is_function(selector: &Selector) -> bool {
    matches!(selector, Selector::Func(_))
}

/// Fails if a function of the pipeline cannot be evaluated again for a row as it was.
pub(super) fn check_pipeline(pipeline: &Pipeline) -> Result<(), EvalError> {
    selectors(pipeline).try_for_each(check_selector)?;
    check_functions(pipeline.grouped_steps.iter().flat_map(Transform::functions))
}

/// Fails if the function of the selector cannot be evaluated again for a row as it was.
pub(super) fn check_selector(selector: &Selector) -> Result<(), EvalError> {
    match selector {
        Selector::Field(_) => Ok(()),
        Selector::Func(closure) => check_functions(std::iter::once(closure)),
    }
}

/// A change is evaluated again for the row before it: the result must be the same as before.
fn check_functions<'a>(mut functions: impl Iterator<Item = &'a Closure>) -> Result<(), EvalError> {
    let is_repeatable = |closure: &Closure| {
        closure.as_foreign().is_none() && purity::of_func(&closure.func) != Determinism::Never
    };
    match functions.all(is_repeatable) {
        true => Ok(()),
        false => Err(EvalError::logic("Cannot call `changes` after a non-deterministic function.")),
    }
}
