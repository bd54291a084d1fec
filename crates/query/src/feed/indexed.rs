//! Rows of a sequence as they were where a feed begins, found by the order or the index of the sequence.
//!
//! A row that has not changed since then is found as it was. All others are in the history.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::FeedStart;
use datum::{Datum, Object, PrimaryKey};

use super::plan::FeedPlan;
use super::scan::detached;
use crate::context::Cx;
use crate::stream::{Pipe, RowSource, Source};
use crate::table::{IndexItems, IndexRead};

/// Up to this many rows are read so. For more of them the whole table is read.
const ROWS_MAX: usize = 2000;
/// And up to this many bytes of them, as JSON.
const BYTES_MAX: usize = 16 << 20;

/// Rows of a sequence, and some that were not in it.
pub(super) struct IndexedRows {
    pub rows: BTreeMap<PrimaryKey, Object>,
    /// The key and the row that have the place up to which these are all rows; `None` if the sequence has no further ones.
    pub last: Option<(PrimaryKey, Object)>,
}

/// All rows of the sequence of `plan` at `starts`. `None` if they are many, or have to be found otherwise. Blocks.
pub(super) fn all(cx: &Cx, plan: &FeedPlan, starts: &[FeedStart]) -> Option<BTreeMap<PrimaryKey, Object>> {
    let source = plan.source.as_ref()?;
    let index = source.index.as_ref()?;
    let index = Arc::new(IndexRead { items: IndexItems::Rows, ..(**index).clone() });
    let found = first(cx, plan, &RowSource { index: Some(index), ..source.clone() }, starts, ROWS_MAX)?;
    found.last.is_none().then_some(found.rows)
}

/// The first rows of the sequence of `plan` at `starts`, about `most` of them, in the order of `source`. `None` if they are many,
/// or cannot be found without reading the whole table. Blocks.
pub(super) fn first(
    cx: &Cx,
    plan: &FeedPlan,
    source: &RowSource,
    starts: &[FeedStart],
    most: usize,
) -> Option<IndexedRows> {
    let feeds = cx.node().feeds();
    // Without a leader the read would wait for one.
    if most > ROWS_MAX || !feeds.has_leaders(&plan.table.handle, &plan.interest) {
        return None;
    }
    let mut present = Pipe::of_source(Source::Rows(source.clone())).open_first(cx, most).ok()?;
    let (env, mut rows, mut last, mut bytes) = (cx.env(), BTreeMap::new(), None, 0);
    let field = &plan.table.handle.config.primary_key;
    while rows.len() < most
        && let Some(Datum::Object(row)) = present.next(&env).ok()?
    {
        bytes += row.json_size();
        if bytes > BYTES_MAX {
            return None;
        }
        let key = PrimaryKey::encode(&row.get(field)?).ok()?;
        last = Some(key.clone());
        rows.insert(key, row.detach());
    }
    let last = last.filter(|_| rows.len() >= most);
    let last = last.and_then(|key| Some((key.clone(), rows.get(&key)?.clone())));
    // After the rows were read: a change that they show must be found.
    let changed = feeds.changed_since(&plan.table.handle, &plan.interest, starts)?;
    for (key, row) in changed {
        match row {
            Some(row) => _ = rows.insert(detached(&key), row.detach()),
            None => _ = rows.remove(&key),
        }
    }
    Some(IndexedRows { rows, last })
}
