//! A table or a part of it: bounds and an order on an index. The value of `table`, `between` and indexed `order_by`.

use std::collections::BTreeMap;
use std::sync::Arc;

use datum::key::check_bound;
use datum::{Datum, KeyError, KeyRange, Text};
use reql::EvalError;
use shard::Bounds;

use super::origin::{Origin, SystemKeys, SystemRows};
use super::seq::Seq;
use crate::context::Cx;
use crate::stream::{Pipe, RowSource, Source, row_reads};
use crate::table::{
    Index, IndexItems, IndexRead, IndexSearch, KeyOrder, StoredTable, TableRef, key_error, primary_range,
};

/// A table with an optional range and order.
#[derive(Clone)]
pub(crate) struct Slice {
    pub table: TableRef,
    /// The index for bounds and order; `None` while there is neither.
    pub index: Option<Text>,
    /// The range of `between`.
    pub bounds: Option<Bounds>,
    pub order: KeyOrder,
}

impl Slice {
    /// The whole of `table`, in no order.
    pub fn whole(table: TableRef) -> Slice {
        Slice { table, index: None, bounds: None, order: KeyOrder::Any }
    }

    /// Whether it is a table without index, bounds and order.
    pub fn is_whole(&self) -> bool {
        self.index.is_none()
    }

    /// The name of its index: the primary key unless another was named.
    pub fn index_name(&self) -> Text {
        self.index.clone().unwrap_or_else(|| self.table.primary_key())
    }

    /// Whether the range is empty, so that its bounds and index need no check. System tables are always checked.
    /// Source: `real_table_t::read_all` of RethinkDB.
    pub fn is_empty(&self) -> bool {
        let stored = matches!(self.table, TableRef::Stored(_));
        stored && self.bounds.as_ref().is_some_and(Bounds::is_empty)
    }

    /// The rows as a lazy sequence.
    pub fn into_seq(self, cx: &Cx) -> Result<Seq, EvalError> {
        let source = self.source(cx, IndexItems::Rows)?;
        let origin = match &self.table {
            // No row ever enters an empty range.
            TableRef::Stored(table) if self.is_empty() => {
                Some(Origin::Keys { table: table.clone(), copies: BTreeMap::new(), steps: Vec::new() })
            }
            TableRef::Stored(_) => None,
            TableRef::System(system) => Some(Origin::SystemRows(SystemRows {
                system: system.clone(),
                keys: SystemKeys::Range(self.range()),
                order: self.order,
                is_limited: false,
                steps: Vec::new(),
            })),
        };
        let origin = origin.map(Box::new);
        Ok(Seq { origin, ..Seq::selection(self.table, Pipe::of_source(source)) })
    }

    /// The source of the rows; with a secondary index `items` says what to return of them. Bounds that cannot be keys fail when
    /// rows are read, as in RethinkDB.
    pub fn source(&self, cx: &Cx, items: IndexItems) -> Result<Source, EvalError> {
        if self.is_empty() {
            return Ok(Source::of_array(Vec::new().into()));
        }
        let index = self.table.index(cx, &self.index_name())?;
        let rows = |table: &StoredTable, range, index| {
            Source::Rows(RowSource { index, ..RowSource::by_key(table.clone(), range, self.order) })
        };
        if let Err(error) = self.check_bounds(&index) {
            return Ok(Source::failing(error));
        }
        Ok(match (&self.table, index) {
            (TableRef::Stored(table), Index::Secondary(index)) => {
                let bounds = self.bounds.clone().unwrap_or_else(Bounds::all);
                let search = IndexSearch::Values([(bounds, 1)].into());
                let (id, name, relied_on) = (index.id, index.name, None);
                let read = IndexRead { id, name, search, items, after: None, relied_on };
                rows(table, KeyRange::all(), Some(Arc::new(read)))
            }
            (TableRef::Stored(table), Index::Primary) => rows(table, self.range(), None),
            (TableRef::System(system), _) => {
                Source::of_array(row_reads::system_rows(cx, system, &self.range(), self.order)?.into())
            }
        })
    }

    /// Fails if a changefeed cannot follow the rows because a bound cannot be a key.
    pub fn check_followed(&self, cx: &Cx) -> Result<(), EvalError> {
        match self.is_empty() {
            true => Ok(()),
            false => self.check_bounds(&self.table.index(cx, &self.index_name())?),
        }
    }

    /// Fails for bounds that cannot be keys of `index`. No secondary index contains objects; its other invalid bounds fail where rows
    /// are read. Rows of a system table are compared as values, so their bounds are not checked.
    fn check_bounds(&self, index: &Index) -> Result<(), EvalError> {
        let (Some(bounds), TableRef::Stored(_)) = (&self.bounds, &self.table) else { return Ok(()) };
        let ends = [&bounds.left, &bounds.right];
        let wrong = match index {
            Index::Primary => ends.into_iter().find_map(|end| check_bound(end).err()),
            Index::Secondary(_) => {
                let object = ends.into_iter().find(|end| matches!(end, Datum::Object(_)));
                object.map(|object| KeyError::SecondaryKind(object.clone()))
            }
        };
        wrong.map_or(Ok(()), |error| Err(key_error(&error)))
    }

    /// The range of primary keys between the bounds.
    fn range(&self) -> KeyRange {
        self.bounds.as_ref().map_or_else(KeyRange::all, primary_range)
    }
}
