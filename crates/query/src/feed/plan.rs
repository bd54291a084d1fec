//! The rows that a feed follows, and the steps that they take.

use std::collections::BTreeSet;

use cluster::{FeedStart, Feeds, Interest};
use datum::{Bytes, Datum, PrimaryKey, row};
use reql::codec::Packer;
use reql::purity::{self, Determinism};
use reql::{Closure, EvalError, Flow, Transform};

use super::options::FeedOptions;
use crate::context::Cx;
use crate::service::FeedKind;
use crate::stream::{Pipe, Source};
use crate::table::{KeyOrder, StoredTable, TableRef, key_error};
use crate::value::{Row, Seq, Slice, Value};

/// The rows, the steps and the kind of a feed.
pub(crate) struct FeedPlan {
    pub table: StoredTable,
    pub interest: Interest,
    pub kind: FeedKind,
    pub steps: RowSteps,
}

/// The steps between a row and the value that the feed is about.
pub(crate) struct RowSteps(Vec<Transform>);

impl FeedPlan {
    /// The plan for the argument of `changes`. Fails if it cannot be followed.
    pub fn of(cx: &Cx, value: Value) -> Result<FeedPlan, EvalError> {
        match value {
            Value::Table(slice) => FeedPlan::of_slice(cx, slice),
            Value::Row(row) => FeedPlan::of_row(row),
            Value::Seq(seq) if seq.eager => Err(eager()),
            Value::Seq(Seq { table: Some(TableRef::System(_)), .. }) => Err(not_yet("system tables")),
            Value::Seq(Seq { table: Some(_), pipe: Pipe { source: Source::Items(_), .. }, .. }) => {
                Err(not_yet("a part of an order, or of an unordered sequence"))
            }
            Value::Seq(seq) => FeedPlan::of_pipe(seq.pipe),
            Value::Datum(Datum::Array(_)) | Value::Grouped(_) => Err(eager()),
            other => Err(other.not_a(cx, "SEQUENCE")),
        }
    }

    fn of_slice(cx: &Cx, slice: Slice) -> Result<FeedPlan, EvalError> {
        match &slice.table {
            TableRef::System(_) => Err(not_yet("system tables")),
            // An empty range, which no row ever enters.
            TableRef::Stored(table) if slice.is_empty() => Ok(FeedPlan {
                table: table.clone(),
                interest: Interest::Keys(BTreeSet::new()),
                kind: FeedKind::Sequence,
                steps: RowSteps(Vec::new()),
            }),
            TableRef::Stored(_) => FeedPlan::of_pipe(slice.into_seq(cx)?.pipe),
        }
    }

    /// A feed of one document.
    fn of_row(row: Row) -> Result<FeedPlan, EvalError> {
        if row.was_found_by_order() {
            return Err(not_yet("the first row of an order: `nth`, `min` and `max`"));
        }
        let TableRef::Stored(table) = row.table else { return Err(not_yet("system tables")) };
        let key = PrimaryKey::encode(&row.key).map_err(|error| key_error(&error))?;
        let interest = Interest::Keys(BTreeSet::from([key]));
        Ok(FeedPlan { table, interest, kind: FeedKind::Point, steps: RowSteps(Vec::new()) })
    }

    fn of_pipe(pipe: Pipe) -> Result<FeedPlan, EvalError> {
        let (table, interest) = match pipe.source {
            Source::Rows(rows) if rows.index.is_some() => return Err(not_yet("secondary indexes")),
            Source::Rows(rows) if rows.most.is_some() => return Err(not_yet("`limit`")),
            Source::Rows(rows) if rows.order != KeyOrder::Any => return Err(not_yet("an order")),
            Source::Rows(rows) => (rows.table, Interest::Range(rows.range)),
            Source::Keys(keys) => {
                let (table, keys) = keys.into_keys();
                (table, Interest::Keys(keys.collect()))
            }
            Source::Items(_) => return Err(eager()),
        };
        if let Some(step) = pipe.steps.iter().find(|step| matches!(step, Transform::ConcatMap(_))) {
            return Err(EvalError::logic(format!("Cannot call `changes` after `{}`.", step.name())));
        }
        // A change is evaluated again for the row before it: the result must be the same as before.
        let is_repeatable = |closure: &&Closure| {
            closure.as_foreign().is_none() && purity::of_func(&closure.func) != Determinism::Never
        };
        if !pipe.steps.iter().flat_map(Transform::functions).all(|closure| is_repeatable(&closure)) {
            return Err(EvalError::logic("Cannot call `changes` after a non-deterministic function."));
        }
        Ok(FeedPlan { table, interest, kind: FeedKind::Sequence, steps: RowSteps(pipe.steps) })
    }

    /// The present positions at which the feed begins.
    pub fn start(&self, feeds: &Feeds) -> Result<Vec<FeedStart>, EvalError> {
        feeds.start(&self.table.handle, &self.interest).map_err(|_| unavailable(&self.table))
    }

    /// A number that tells this feed from feeds of other rows, steps and options of the same table. It is the same on every
    /// server.
    pub fn digest(&self, options: &FeedOptions) -> Result<u64, EvalError> {
        let mut packer = Packer::with_capacity(64);
        packer.list(self.steps.0.iter());
        let mut bytes = packer.finish().map_err(|error| error.error("a feed"))?.to_vec();
        match &self.interest {
            Interest::Keys(keys) => keys.iter().for_each(|key| bytes.extend_from_slice(key.as_bytes())),
            Interest::Range(range) => bytes.extend_from_slice(format!("{range:?}").as_bytes()),
        }
        bytes.extend([options.include_states, options.include_types].map(u8::from));
        let low = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(b"digest");
        Ok(u64::from(low) << 32 | u64::from(crc32c::crc32c(&bytes)))
    }
}

impl RowSteps {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a row; `None` if there is no row, or a step leaves nothing of it. A step that fails leaves nothing.
    /// Source: `apply_ops` in rdb_protocol/changefeed.cc of RethinkDB.
    pub fn value(&self, cx: &Cx, row: Option<Datum>) -> Option<Datum> {
        let row = row?;
        if self.0.is_empty() {
            return Some(row);
        }
        let mut value = None;
        let run = reql::run(&self.0, row, &cx.closed_env(), &mut |item| {
            value = Some(item);
            Ok(Flow::Continue)
        });
        value.filter(|_| run.is_ok())
    }
}

/// The row in stored bytes.
pub(super) fn row_of(bytes: Option<&Bytes>) -> Result<Option<Datum>, EvalError> {
    let decode = |bytes: &Bytes| row::decode(bytes.clone()).map(Datum::Object);
    bytes
        .map(decode)
        .transpose()
        .map_err(|error| EvalError::internal(format!("a changed row is damaged: {error}")))
}

fn eager() -> EvalError {
    EvalError::logic("Cannot call `changes` on an eager stream.")
}

fn not_yet(what: &str) -> EvalError {
    EvalError::logic(format!("`changes` is not supported on {what} by this version."))
}

/// The error of a feed that cannot be served.
pub(super) fn unavailable(table: &StoredTable) -> EvalError {
    let (db, name) = (&table.handle.db.name, &table.handle.config.name);
    EvalError::op_failed(format!(
        "Cannot follow the changes of table `{db}.{name}`: for some seconds no replica of a shard could be reached that is \
         in contact with its leader."
    ))
}
