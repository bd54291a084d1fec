//! Reads by an index whose name moves to another index meanwhile.
//!
//! A query names an index, and shards identify it by a number. A shard may have received a change of the names earlier
//! than this node: the index is gone there, and the query means the index that has the name now. The whole read starts
//! again then, so that no result mixes two indexes.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use cluster::IndexConfig;
use reql::{ErrorClass, EvalError, ResultKind, Scope, Selector};
use shard::IndexKind;

use super::rows::RowSource;
use crate::context::Cx;
use crate::routing::LEADER_LOOKUP_TIMEOUT;
use crate::table::{IndexRead, StoredTable};

/// The selector of an index's value in a row.
pub(crate) fn by_function(index: &IndexConfig) -> Result<Selector, EvalError> {
    reql::closure(index.function.func(), &Scope::empty(), ResultKind::Datum).map(Selector::Func)
}

impl RowSource {
    /// The result of `read`, which must not return anything before it is done. If it fails and the name belongs to
    /// another index by now, it is called again with that index, until the timeout of a leader lookup.
    pub fn with_present_index<T>(
        &self,
        cx: &Cx,
        read: impl Fn(&RowSource) -> Result<T, EvalError>,
    ) -> Result<T, EvalError> {
        let began = Instant::now();
        let mut rows = Cow::Borrowed(self);
        loop {
            match read(&rows) {
                Err(error)
                    if error.class() == ErrorClass::OpFailed && began.elapsed() < LEADER_LOOKUP_TIMEOUT =>
                {
                    rows = Cow::Owned(rows.by_renamed_index(cx).ok_or(error)?);
                }
                done => return done,
            }
        }
    }

    /// Whether the query relies on the definition of the index.
    pub fn relies_on_index(&self) -> bool {
        self.index.as_ref().is_some_and(|read| read.relied_on.is_some())
    }

    /// This source, read by a query that relies on the definition of `index`.
    pub fn relying_on(&self, index: Option<IndexConfig>) -> RowSource {
        let read = self.index.as_ref().map(|read| IndexRead { relied_on: index, ..(**read).clone() });
        RowSource { index: read.map(Arc::new), ..self.clone() }
    }

    /// The index that finds these rows, with one value per row, if it is not the one of `before`.
    pub fn index_instead_of(&self, before: &RowSource) -> Option<&IndexConfig> {
        let (read, other) = (self.index.as_ref()?, before.index.as_ref()?);
        let index = self.table.handle.config.indexes.find(&read.name);
        index.filter(|index| index.kind == IndexKind::One && index.id == read.id && read.id != other.id)
    }

    /// The same rows by the index that has the name now, if that is another one.
    fn by_renamed_index(&self, cx: &Cx) -> Option<RowSource> {
        let read = self.index.as_ref()?;
        cx.retry_with_fresh_catalog(|| {
            let handle = cx.node().catalog_guard().table_by_id(self.table.handle.config.id).cloned()?;
            let index = Some(Arc::new(read.with_index(handle.config.indexes.find(&read.name)?)?));
            let table = StoredTable { handle, read_mode: self.table.read_mode };
            Some(RowSource { table, index, ..self.clone() })
        })
    }
}
