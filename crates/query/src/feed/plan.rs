//! The rows that a feed follows, and the values that it computes from them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use cluster::{FeedStart, Feeds, IndexConfig, Interest, RowValues, ValuesOf, WantedValues};
use datum::{Datum, KeyRange, Object, PrimaryKey};
use reql::{EvalError, Pipeline, Terminal, Transform};
use shard::{ChangedObjects, IndexKind};

use super::entries::{IndexEntries, RowEntries};
use super::steps::{RowSteps, add_pipeline, check_pipeline};
use super::total::Total;
use crate::context::Cx;
use crate::routing::ReadMode;
use crate::service::FeedKind;
use crate::stream::RowSource;
use crate::table::{IndexRead, KeyOrder, StoredTable, TableRef};
use crate::value::{FirstRows, Origin, UNORDERED};

/// The rows, the steps and the kind of a feed.
pub(crate) struct FeedPlan {
    pub table: StoredTable,
    pub interest: Interest,
    pub kind: FeedKind,
    pub entries: RowEntries,
    /// The rows by their index, if all of them can be read by it as they are at present.
    pub source: Option<RowSource>,
    /// The index without which the feed ends.
    pub index: Option<IndexConfig>,
    pub steps: RowSteps,
    /// The value that is computed from the rows; `None` for a feed of the rows themselves.
    pub view: Option<ViewPlan>,
}

/// A value that a feed computes from rows.
pub(crate) enum ViewPlan {
    FirstRows(Limit),
    /// An aggregate, or one for each group.
    Aggregate(Pipeline),
    Distinct,
    /// One side of a join: see [`super::join_plan::JoinPlan`].
    JoinSide,
}

/// The first rows of an order.
pub(crate) struct Limit {
    pub most: usize,
    pub is_descending: bool,
    /// All rows in this order, if a row has only one place in it.
    pub ordered: Option<RowSource>,
}

impl FeedPlan {
    /// The plan for rows of one table; `None` for any other origin. `steps_of` checks their steps.
    pub fn of_origin(
        cx: &Cx,
        origin: Origin,
        steps_of: fn(Vec<Transform>) -> Result<RowSteps, EvalError>,
    ) -> Result<Option<FeedPlan>, EvalError> {
        Ok(match origin {
            Origin::Rows { source, steps } => Some(FeedPlan::of_rows(cx, source, steps_of(steps)?)?),
            Origin::Keys { table, copies, steps } => {
                Some(FeedPlan::of_keys(table, copies, FeedKind::Sequence, steps_of(steps)?))
            }
            _ => None,
        })
    }

    /// A feed of the rows under these keys.
    pub fn of_keys(
        table: StoredTable,
        copies: BTreeMap<PrimaryKey, u32>,
        kind: FeedKind,
        steps: RowSteps,
    ) -> FeedPlan {
        let interest = Interest::Keys(copies.keys().cloned().collect());
        FeedPlan {
            table,
            interest,
            kind,
            entries: RowEntries::Copies(copies),
            source: None,
            index: None,
            steps,
            view: None,
        }
    }

    /// A feed of rows of a table or an index.
    pub fn of_rows(cx: &Cx, rows: RowSource, steps: RowSteps) -> Result<FeedPlan, EvalError> {
        // A replica that is behind does not show all rows that were there when the feed began.
        let is_present = rows.table.read_mode != ReadMode::Outdated;
        let source = Some(&rows).filter(|rows| is_present && rows.index.is_some()).cloned();
        let (entries, index) = match &rows.index {
            None => (RowEntries::Once, None),
            Some(read) => {
                let (entries, config) = index_entries(cx, &rows.table, read)?;
                (RowEntries::Index(Box::new(entries)), Some(config))
            }
        };
        let interest = match (&entries, steps.condition()) {
            (RowEntries::Index(index), _) => index.interest(rows.range),
            (_, Some((field, bounds))) => {
                let wanted = match bounds.left == bounds.right {
                    true => WantedValues::Equal(HashSet::from([bounds.left])),
                    false => WantedValues::Within(vec![bounds]),
                };
                Interest::Values(Arc::new(RowValues {
                    range: rows.range,
                    of: ValuesOf::Field(field),
                    wanted,
                }))
            }
            _ => Interest::Range(rows.range),
        };
        let kind = FeedKind::Sequence;
        Ok(FeedPlan { table: rows.table, interest, kind, entries, source, index, steps, view: None })
    }

    /// A feed that keeps whole rows of a table, for one side of a join.
    pub fn of_table(table: StoredTable, index: Option<IndexConfig>) -> Result<FeedPlan, EvalError> {
        Ok(FeedPlan {
            table,
            interest: Interest::Range(KeyRange::all()),
            kind: FeedKind::Join,
            source: None,
            entries: RowEntries::Once,
            index,
            steps: RowSteps::of_one(Vec::new())?,
            view: Some(ViewPlan::JoinSide),
        })
    }

    /// The same rows, from which something is computed.
    pub fn with_view(self, kind: FeedKind, view: ViewPlan) -> FeedPlan {
        FeedPlan { kind, view: Some(view), ..self }
    }

    /// The same rows with an aggregate. Fails if it cannot be kept up to date.
    pub fn aggregated(self, pipeline: Pipeline) -> Result<FeedPlan, EvalError> {
        check_pipeline(&pipeline)?;
        if Total::empty(&pipeline.terminal).is_none() {
            return Err(EvalError::logic(format!(
                "Cannot call `changes` after `{}`: its result cannot be kept up to date when rows are changed or deleted.",
                pipeline.terminal.name()
            )));
        }
        let view = match (&pipeline.group, &pipeline.terminal) {
            (None, Terminal::Distinct) => ViewPlan::Distinct,
            _ => ViewPlan::Aggregate(pipeline),
        };
        Ok(self.with_view(FeedKind::Aggregate, view))
    }

    /// A feed of the first rows of an order. Source: terms/seq.cc and datum_stream.cc of RethinkDB.
    pub fn of_first_rows(cx: &Cx, first: FirstRows) -> Result<FeedPlan, EvalError> {
        let FirstRows { source, steps, most, is_transformed } = first;
        if is_transformed {
            return Err(EvalError::logic(
                "Changefeeds are not supported on queries that have a transformation following a `limit` term.  \
                 Transformations include terms such as `filter`, `map`, `pluck`, etc.  Consider moving the \
                 transformation before the `limit` term.",
            ));
        }
        let is_descending = match source.order {
            KeyOrder::Any => return Err(EvalError::logic(UNORDERED)),
            order => order == KeyOrder::Descending,
        };
        if most > cx.array_limit {
            return Err(EvalError::resource(format!(
                "Array size limit `{}` exceeded.  (`.limit(X).changes()` is illegal if X is larger than the array size \
                 limit.)",
                cx.array_limit
            )));
        }
        // A replica that is behind does not show all rows that were there when the feed began.
        let is_present = source.table.read_mode != ReadMode::Outdated;
        let ordered = source.clone();
        let plan = FeedPlan::of_rows(cx, source, RowSteps::of_one(steps)?)?;
        let is_single = plan.index.as_ref().is_none_or(|index| index.kind == IndexKind::One);
        let ordered = Some(ordered).filter(|_| is_present && is_single);
        Ok(plan.with_view(FeedKind::FirstRows, ViewPlan::FirstRows(Limit { most, is_descending, ordered })))
    }

    /// The present positions at which the feed begins.
    pub fn start(&self, feeds: &Feeds) -> Result<Vec<FeedStart>, EvalError> {
        feeds.start(&self.table.handle, &self.interest).map_err(|_| unavailable(&self.table))
    }

    /// The values of the feed that come from a row. Fails for lack of memory.
    pub fn values(&self, cx: &Cx, key: &PrimaryKey, row: Option<&Object>) -> Result<Vec<Datum>, EvalError> {
        let items = self.entries.items(key, row, &cx.cancel);
        if self.steps.is_empty() {
            return Ok(items);
        }
        let mut values = Vec::new();
        for item in items {
            values.extend(self.steps.values(cx, item)?);
        }
        Ok(values)
    }

    /// Whether a change of this row may change the values of the feed, as far as that is known without long work. Fails for lack of
    /// memory.
    pub fn admits(&self, cx: &Cx, key: &PrimaryKey, rows: &ChangedObjects) -> Result<bool, EvalError> {
        if !self.steps.begin_with_filter() || !self.steps.are_bounded() {
            return Ok(true);
        }
        for row in [&rows.old, &rows.new] {
            for item in self.entries.items(key, row.as_ref(), &cx.cancel) {
                if self.steps.admit(cx, item)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Adds bytes that tell this feed from feeds of other rows and steps. They are the same on every server.
    pub fn add_to_digest(&self, bytes: &mut Vec<u8>) -> Result<(), EvalError> {
        self.steps.add_to_digest(bytes)?;
        match &self.interest {
            Interest::Keys(keys) => keys.iter().for_each(|key| bytes.extend_from_slice(key.as_bytes())),
            Interest::Range(range) => bytes.extend_from_slice(format!("{range:?}").as_bytes()),
            Interest::Values(wanted) => bytes.extend_from_slice(format!("{:?}", wanted.range).as_bytes()),
        }
        self.entries.add_to_digest(bytes);
        match &self.view {
            None => {}
            Some(ViewPlan::FirstRows(Limit { most, is_descending, .. })) => {
                bytes.extend_from_slice(&(*most as u64).to_le_bytes());
                bytes.push(u8::from(*is_descending));
            }
            Some(ViewPlan::Aggregate(pipeline)) => add_pipeline(bytes, pipeline)?,
            Some(ViewPlan::Distinct) => bytes.extend_from_slice(b"distinct"),
            Some(ViewPlan::JoinSide) => bytes.extend_from_slice(b"join"),
        }
        Ok(())
    }
}

/// The entries of an index that a feed follows, and the index. Fails if it was dropped, or has no entries that can be followed.
fn index_entries(
    cx: &Cx,
    table: &StoredTable,
    read: &IndexRead,
) -> Result<(IndexEntries, IndexConfig), EvalError> {
    let missing = || TableRef::Stored(table.clone()).unreadable_index(&read.name);
    let config =
        table.find_index(cx, &read.name).filter(|config| config.id == read.id).ok_or_else(missing)?;
    let entries = IndexEntries::of(&config, read).ok_or_else(eager)?;
    Ok((entries, config))
}

/// The error of a sequence that cannot be followed.
pub(super) fn eager() -> EvalError {
    EvalError::logic("Cannot call `changes` on an eager stream.")
}

/// The error of a feed that cannot be served.
pub(super) fn unavailable(table: &StoredTable) -> EvalError {
    let (db, name) = (&table.handle.db.name, &table.handle.config.name);
    EvalError::op_failed(format!(
        "Cannot follow the changes of table `{db}.{name}`: for some seconds no replica of a shard could be reached that is \
         in contact with its leader."
    ))
}
