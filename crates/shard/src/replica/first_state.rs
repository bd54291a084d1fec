//! The state of a group that is new to the engine.

use std::collections::BTreeMap;

use log::Lsn;
use storage::{Applied, Changes, Count, IndexBuild, IndexId, ReadError, ShardRange, Store, Table};

use super::{AppliedState, InitialRows, Predecessor};
use crate::progress::Progress;

impl AppliedState {
    /// The state of a group that is new to the engine.
    pub(super) fn first(
        store: &Store,
        table: &Table,
        shard_range: &ShardRange,
        initial_rows: InitialRows<'_>,
    ) -> Result<AppliedState, ReadError> {
        let (mut changes, mut progress) = (Changes::default(), Progress::default());
        let rows = match initial_rows {
            InitialRows::AwaitCopyUnrecorded => {
                return Ok(AppliedState { lsn: Lsn(0), progress, rows: 0, rows_stored: 0 });
            }
            InitialRows::Inherited(predecessors) => {
                progress = Progress::first(has_history(store, predecessors)?);
                for (index, build) in inherited_builds(store, table, predecessors)? {
                    build.put(&mut changes.batch, table.id(), shard_range.group, index);
                }
                inherited_rows(store, table, shard_range, predecessors)?
            }
            InitialRows::AwaitCopy => 0,
        };
        Applied { lsn: Lsn(0), progress: progress.encode() }.put(&mut changes.batch, shard_range.group);
        Count(rows).put(&mut changes.batch, table.id(), shard_range.group);
        store.write(changes)?;
        Ok(AppliedState { lsn: Lsn(0), progress, rows, rows_stored: rows })
    }
}

/// Whether the history of one of the predecessors is on. Each of them is applied here up to its seal, so that all replicas
/// agree.
fn has_history(store: &Store, predecessors: &[Predecessor]) -> Result<bool, ReadError> {
    for old in predecessors {
        let applied = Applied::read(&**store.engine(), old.group)?.unwrap_or_default();
        if Progress::decode(&applied.progress).is_some_and(|progress| progress.history().is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The number of rows: the sum of the predecessors' counts, or counted if one of those continues in several parts.
fn inherited_rows(
    store: &Store,
    table: &Table,
    shard_range: &ShardRange,
    predecessors: &[Predecessor],
) -> Result<u64, ReadError> {
    let is_whole = |old: &Predecessor| shard_range.range.intersect(&old.range) == old.range;
    if predecessors.is_empty() || !predecessors.iter().all(is_whole) {
        return table.snapshot(shard_range.clone())?.count_range(&shard_range.range);
    }
    let count = |old: &Predecessor| Ok(Count::read(&**store.engine(), table.id(), old.group)?.0);
    predecessors.iter().map(count).sum()
}

/// The build records of a group with predecessors: an index that is not built in all of them is built again. Each of
/// their rows has the entries of every index registered with its own group, and of no others, so that is safe.
fn inherited_builds(
    store: &Store,
    table: &Table,
    predecessors: &[Predecessor],
) -> Result<BTreeMap<IndexId, IndexBuild>, ReadError> {
    let mut ready_counts: BTreeMap<IndexId, usize> = BTreeMap::new();
    for old in predecessors {
        for (index, build) in IndexBuild::read_all(&**store.engine(), table.id(), old.group)? {
            *ready_counts.entry(index).or_default() += usize::from(build == IndexBuild::Ready);
        }
    }
    let build = |ready| match ready == predecessors.len() {
        true => IndexBuild::Ready,
        false => IndexBuild::default(),
    };
    Ok(ready_counts.into_iter().map(|(index, ready)| (index, build(ready))).collect())
}
