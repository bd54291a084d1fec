//! Grouped values: groups of a sequence that is not read yet, or a value for each group.

use datum::Datum;
use reql::EvalError;
use reql::GroupBy;
use reql::GroupedKind;
use reql::Pipeline;
use reql::Terminal;
use reql::Transform;

use crate::context::Cx;
use crate::stream::{Pipe, gather};

/// A value for each group.
pub(crate) enum Grouped {
    /// Groups of a sequence that is not read yet.
    Lazy {
        /// The items before grouping.
        pipe: Pipe,
        /// How to group them.
        by: GroupBy,
        /// The steps for the items of each group.
        steps: Vec<Transform>,
    },
    /// Keys and values.
    Ready(reql::Grouped),
}

impl Grouped {
    /// The result of `type_of`.
    pub fn type_of(&self) -> &'static str {
        if self.is_stream() { "GROUPED_STREAM" } else { "GROUPED_DATA" }
    }

    /// Whether the groups are sequences still, which most terms for values do not take.
    pub fn is_stream(&self) -> bool {
        match self {
            Grouped::Lazy { .. } => true,
            Grouped::Ready(ready) => ready.kind == GroupedKind::Stream,
        }
    }

    /// Ends the sequence of each group.
    pub fn end(self, cx: &Cx, more: Vec<Transform>, terminal: Terminal) -> Result<reql::Value, EvalError> {
        match self {
            Grouped::Lazy { pipe, by, mut steps } => {
                steps.extend(more);
                let pipeline =
                    Pipeline { steps: Vec::new(), group: Some(by), grouped_steps: steps, terminal };
                gather(cx, pipe, pipeline)
            }
            Grouped::Ready(ready) => {
                let operation = reql::Operation::Terminal(more, terminal);
                operation.apply(reql::Value::Grouped(Box::new(ready)), &cx.env())
            }
        }
    }

    /// Keys and values; lazy groups become arrays.
    pub fn into_ready(self, cx: &Cx) -> Result<reql::Grouped, EvalError> {
        match self {
            Grouped::Ready(ready) => Ok(ready),
            lazy => match lazy.end(cx, Vec::new(), Terminal::Collect)? {
                reql::Value::Grouped(ready) => Ok(*ready),
                _ => Err(EvalError::internal("grouped data is not grouped any more")),
            },
        }
    }

    /// The object for the client.
    pub fn into_answer(self, cx: &Cx) -> Result<Datum, EvalError> {
        let ready = self.into_ready(cx)?;
        let pairs = ready.groups.into_iter().map(|(key, value)| Datum::from(vec![key, value]));
        let data = pairs.collect::<Vec<_>>().into();
        let fields = [("$reql_type$", "GROUPED_DATA".into()), ("data", data)];
        let object = fields.into_iter().map(|(name, value)| (datum::Text::from_static(name), value));
        Ok(Datum::Object(object.collect()))
    }
}
