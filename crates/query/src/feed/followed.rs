//! The plans of a feed: one, or one for each sequence of a union.

use std::collections::BTreeMap;

use datum::{Datum, PrimaryKey};
use reql::{EvalError, Pipeline};

use super::join_plan::JoinPlan;
use super::plan::{FeedPlan, ViewPlan, eager};
use super::steps::RowSteps;
use crate::context::Cx;
use crate::service::FeedKind;
use crate::table::{KeyOrder, TableRef, key_error};
use crate::value::{Origin, Row, Seq, SystemKeys, SystemRows, UNORDERED, Value};

/// The plan for one sequence.
pub(crate) enum Followed {
    Rows(Box<FeedPlan>),
    Join(Box<JoinPlan>),
    System(SystemPlan),
}

/// A feed of rows of a system table.
pub(crate) struct SystemPlan {
    pub rows: SystemRows,
    pub kind: FeedKind,
    pub steps: RowSteps,
}

impl Followed {
    fn rows(plan: FeedPlan) -> Followed {
        Followed::Rows(Box::new(plan))
    }

    /// The plans for the argument of `changes`: several for a union. Fails if it cannot be followed.
    pub fn of(cx: &Cx, value: Value) -> Result<Vec<Followed>, EvalError> {
        match value {
            Value::Table(slice) => {
                slice.check_followed(cx)?;
                Followed::of_seq(cx, &slice.into_seq(cx)?)
            }
            Value::Row(row) => Followed::of_row(row),
            Value::Seq(seq) => Followed::of_seq(cx, &seq),
            Value::Datum(Datum::Array(_)) | Value::Grouped(_) => Err(eager()),
            other => Err(other.not_a(cx, "SEQUENCE")),
        }
    }

    fn of_seq(cx: &Cx, seq: &Seq) -> Result<Vec<Followed>, EvalError> {
        Followed::of_origin(cx, seq.followed().ok_or_else(eager)?)
    }

    /// The plans for rows of this origin: several for a union. Fails if they cannot be followed.
    pub fn of_origin(cx: &Cx, origin: Origin) -> Result<Vec<Followed>, EvalError> {
        let one = match origin {
            Origin::Rows { .. } | Origin::Keys { .. } => {
                Followed::rows(FeedPlan::of_origin(cx, origin, RowSteps::of_one)?.ok_or_else(eager)?)
            }
            Origin::FirstRows(first) => Followed::rows(FeedPlan::of_first_rows(cx, first)?),
            Origin::Distinct(source) => {
                let rows = FeedPlan::of_rows(cx, source, RowSteps::of_many(Vec::new())?)?;
                Followed::rows(rows.with_view(FeedKind::Aggregate, ViewPlan::Distinct))
            }
            Origin::Join(join) => Followed::Join(Box::new(JoinPlan::of(cx, join)?)),
            Origin::SystemRows(rows) => Followed::System(SystemPlan::of(rows, FeedKind::Sequence)?),
            Origin::Union(parts) => {
                let of_part = |part: Option<Origin>| Followed::of_origin(cx, part.ok_or_else(eager)?);
                let parts: Result<Vec<_>, EvalError> = parts.into_iter().map(of_part).collect();
                return Ok(parts?.into_iter().flatten().collect());
            }
            Origin::Refused(why) => return Err(EvalError::logic(why)),
        };
        Ok(vec![one])
    }

    /// A feed of an aggregate of rows of this origin. Fails if it cannot be kept up to date.
    pub fn of_aggregate(cx: &Cx, origin: Origin, pipeline: Pipeline) -> Result<Vec<Followed>, EvalError> {
        let term = pipeline.terminal.name();
        let what = origin.description();
        match FeedPlan::of_origin(cx, origin, RowSteps::of_many)? {
            Some(rows) => Ok(vec![Followed::rows(rows.aggregated(pipeline)?)]),
            None => Err(EvalError::logic(format!(
                "Cannot call `changes` after `{term}` on {what}: an aggregate is kept up to date only for rows of one table."
            ))),
        }
    }

    /// A feed of one document.
    fn of_row(row: Row) -> Result<Vec<Followed>, EvalError> {
        let one = match row.table {
            TableRef::Stored(table) => {
                let key = PrimaryKey::encode(&row.key).map_err(|error| key_error(&error))?;
                let (copies, steps) = (BTreeMap::from([(key, 1)]), RowSteps::of_one(Vec::new())?);
                Followed::rows(FeedPlan::of_keys(table, copies, FeedKind::Point, steps))
            }
            TableRef::System(system) => {
                let key = system.table.normalized_key(&row.key).unwrap_or(row.key);
                let copies = PrimaryKey::encode(&key).ok().map(|key| (key, 1)).into_iter().collect();
                let (keys, steps) = (SystemKeys::Copies(copies), Vec::new());
                let rows = SystemRows { system, keys, order: KeyOrder::Any, is_limited: false, steps };
                Followed::System(SystemPlan::of(rows, FeedKind::Point)?)
            }
        };
        Ok(vec![one])
    }
}

impl SystemPlan {
    fn of(rows: SystemRows, kind: FeedKind) -> Result<SystemPlan, EvalError> {
        match (rows.is_limited, rows.order) {
            (true, KeyOrder::Any) => Err(EvalError::logic(UNORDERED)),
            (true, _) => Err(EvalError::op_failed("System tables don't support changefeeds on `.limit()`.")),
            (false, _) => {
                let steps = RowSteps::of_one(rows.steps.clone())?;
                Ok(SystemPlan { rows, kind, steps })
            }
        }
    }
}
