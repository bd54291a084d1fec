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
                keys: SystemKeys::Range(self.range()?),
                order: self.order,
                is_limited: false,
                steps: Vec::new(),
            })),
        };
        let origin = origin.map(Box::new);
        Ok(Seq { origin, ..Seq::selection(self.table, Pipe::of_source(source)) })
    }

    /// The source of the rows; with a secondary index `items` says what to return of them.
    pub fn source(&self, cx: &Cx, items: IndexItems) -> Result<Source, EvalError> {
        if self.is_empty() {
            return Ok(Source::of_array(Vec::new().into()));
        }
        let index = self.table.index(cx, &self.index_name())?;
        let rows = |table: &StoredTable, range, index| {
            Source::Rows(RowSource { index, ..RowSource::by_key(table.clone(), range, self.order) })
        };
        Ok(match (&self.table, index) {
            (TableRef::Stored(table), Index::Secondary(index)) => {
                self.check_secondary_bounds()?;
                let bounds = self.bounds.clone().unwrap_or_else(Bounds::all);
                let search = IndexSearch::Values([(bounds, 1)].into());
                let (id, name, relied_on) = (index.id, index.name, None);
                let read = IndexRead { id, name, search, items, after: None, relied_on };
                rows(table, KeyRange::all(), Some(Arc::new(read)))
            }
            (TableRef::Stored(table), Index::Primary) => rows(table, self.range()?, None),
            (TableRef::System(system), _) => {
                Source::of_array(row_reads::system_rows(cx, system, &self.range()?, self.order)?.into())
            }
        })
    }

    /// Fails for an object as a bound: no index contains objects. Other invalid bounds fail when rows are read.
    fn check_secondary_bounds(&self) -> Result<(), EvalError> {
        let ends = self.bounds.iter().flat_map(|bounds| [&bounds.left, &bounds.right]);
        match ends.into_iter().find(|end| matches!(end, Datum::Object(_))) {
            Some(object) => Err(key_error(&KeyError::SecondaryKind(object.clone()))),
            None => Ok(()),
        }
    }

    /// The range of primary keys between the bounds. Fails for bounds that cannot be keys. Rows of a
    /// system table are compared as values, so their bounds are not checked.
    fn range(&self) -> Result<KeyRange, EvalError> {
        let Some(bounds) = &self.bounds else { return Ok(KeyRange::all()) };
        if matches!(self.table, TableRef::Stored(_)) {
            check_bound(&bounds.left)
                .and_then(|()| check_bound(&bounds.right))
                .map_err(|error| key_error(&error))?;
        }
        Ok(primary_range(bounds))
    }
}
