//! Reads by an index whose name another one gets meanwhile.
//!
//! A query says a name, and shards know an index by its number. A shard may have heard of a change of the
//! names before this node has: the index is gone there, and what is to be read is the one that has the
//! name now. All of the read begins anew then, so that no answer is of two indexes.

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

/// The selector that takes the value of an index from a row.
pub(crate) fn by_function(index: &IndexConfig) -> Result<Selector, EvalError> {
    reql::closure(index.function.func(), &Scope::empty(), ResultKind::Datum).map(Selector::Func)
}

impl RowSource {
    /// What `read` makes of the rows. As often as it fails, and the name of the index turns out to be that of
    /// another one by now, it is asked again with that one, for as long as shards are looked for. It gives
    /// nothing out before it is over.
    pub fn by_present_index<T>(
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
                    rows = Cow::Owned(rows.replaced(cx).ok_or(error)?);
                }
                done => return done,
            }
        }
    }

    /// Whether somebody counts on what the index holds.
    pub fn relies_on_index(&self) -> bool {
        self.index.as_ref().is_some_and(|read| read.relied_on.is_some())
    }

    /// The same, for whoever counts on it that the index is `index` or holds the same.
    pub fn relying_on(&self, index: Option<IndexConfig>) -> RowSource {
        let read = self.index.as_ref().map(|read| IndexRead { relied_on: index, ..(**read).clone() });
        RowSource { index: read.map(Arc::new), ..self.clone() }
    }

    /// The index these rows are found by, with one value for a row, if `before` are found by another one.
    pub fn index_instead_of(&self, before: &RowSource) -> Option<&IndexConfig> {
        let (read, other) = (self.index.as_ref()?, before.index.as_ref()?);
        let index = self.table.handle.config.indexes.find(&read.name);
        index.filter(|index| index.kind == IndexKind::One && index.id == read.id && read.id != other.id)
    }

    /// The same by the index that has the name now, if that is another one.
    fn replaced(&self, cx: &Cx) -> Option<RowSource> {
        let read = self.index.as_ref()?;
        cx.retry_with_fresh_catalog(|| {
            let handle = cx.node().catalog_guard().table_by_id(self.table.handle.config.id).cloned()?;
            let index = Some(Arc::new(read.with_index(handle.config.indexes.find(&read.name)?)?));
            let table = StoredTable { handle, read_mode: self.table.read_mode };
            Some(RowSource { table, index, ..self.clone() })
        })
    }
}
