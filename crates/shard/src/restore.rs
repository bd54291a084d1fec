//! Removes the rows of a shard, or replaces them by a copy. The log applies nothing meanwhile.

use std::sync::Arc;

use bytes::Bytes;
use datum::{KeyRange, PrimaryKey, row};
use engine::{Batch, EngineError};
use log::Lsn;
use storage::{
    Applied, Changes, Count, Direction, HistoryRecord, IndexBuild, IndexChange, IndexId, IndexRange,
    ReadError, RowChange, TableSnapshot,
};

use crate::copy_range::range_after;
use crate::{CopyRange, CopyRangeSizes, Difference, IndexDef, Shard, index};

/// The number of changes in one engine batch.
const BATCH_CHANGES: usize = 1000;

/// Errors of replacing rows.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The present rows could not be read, or a received row is not valid.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The copy has an index that this shard does not know yet.
    #[error("index {0} is not known here yet")]
    Index(IndexId),
    /// A received row is damaged.
    #[error("a copied row is damaged")]
    Damaged,
    /// The response does not fit the request.
    #[error("the response is not part of the copy")]
    Misfit,
}

/// The properties of a copy other than its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyEnd {
    /// The copy's position in the log.
    pub at: Lsn,
    /// The progress at that position.
    pub progress: Bytes,
    /// The build records of its indexes.
    pub builds: Vec<(IndexId, IndexBuild)>,
}

/// What becomes of the rows that a replica has when it gets a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresentRows {
    /// They are compared with the copy; equal ones stay.
    Compared,
    /// They may be damaged: they are deleted without being read, each part once the copy of it has been received.
    Replaced,
}

/// Replaces the rows of a shard by a copy, from the first key to the last. Identical rows stay. If it is interrupted,
/// the next one starts from the rows it left: docs/decisions/0032-resumable-copies.md.
pub struct Restoration<'a> {
    shard: &'a Shard,
    end: CopyEnd,
    present: PresentRows,
    // The indexes of the copy. Entries of other indexes come with the log.
    indexes: Vec<Arc<IndexDef>>,
    // All rows up to this key are as in the copy.
    after: Option<PrimaryKey>,
    rows: u64,
    is_whole: bool,
}

/// Removes the rows of `range` in `shard`, and their index entries.
pub fn clear_rows(shard: &Shard, range: &KeyRange) -> Result<(), RestoreError> {
    let mut shard_range = shard.shard_range().clone();
    shard_range.range = shard_range.range.intersect(range);
    let snapshot = shard.table().snapshot(shard_range.clone())?;
    clear_entries(shard, &snapshot)?;
    delete_rows(shard, &snapshot, &shard_range.range, |_| true)
}

/// As [`clear_rows`] for all rows of `shard`, for rows that may be damaged: they are not read, and their index entries stay.
pub fn drop_rows(shard: &Shard) -> Result<(), RestoreError> {
    replace_rows(shard, &KeyRange::all())?;
    shard.table().store().forget_cached();
    Ok(())
}

/// Deletes rows of `shard` without reading them. The cache may still have them.
fn replace_rows(shard: &Shard, range: &KeyRange) -> Result<(), RestoreError> {
    let mut batch = Batch::new();
    storage::drop_rows(&mut batch, shard.table().id(), &shard.shard_range().range.intersect(range));
    Ok(shard.table().store().engine().write(batch)?)
}

impl Restoration<'_> {
    /// Starts replacing the rows by a copy. The rows must not be read until that is finished. Fails if an index of the
    /// copy is not known yet; a dropped one is left out.
    pub fn begin(
        shard: &Shard,
        mut end: CopyEnd,
        present: PresentRows,
    ) -> Result<Restoration<'_>, RestoreError> {
        // Read first: an index that was known by then and is unknown afterwards was dropped, and is not new.
        let seen: Vec<bool> = end.builds.iter().map(|(id, _)| shard.has_seen_index(*id)).collect();
        let known = shard.indexes();
        let mut indexes = Vec::new();
        let find = |id: IndexId| known.iter().find(|index| index.id() == id).cloned();
        for ((id, _), is_old) in end.builds.iter().zip(seen) {
            match find(*id) {
                Some(index) => indexes.push(index),
                None if is_old => {}
                None => return Err(RestoreError::Index(*id)),
            }
        }
        end.builds.retain(|(id, _)| find(*id).is_some());
        clear_entries(shard, &shard.snapshot()?)?;
        Ok(Restoration { shard, end, present, indexes, after: None, rows: 0, is_whole: false })
    }

    /// The key up to which the rows are as in the copy.
    #[must_use]
    pub fn after(&self) -> Option<&PrimaryKey> {
        self.after.as_ref()
    }

    /// The number of rows that are as in the copy.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether all rows are as in the copy.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The next rows of this shard as copy ranges, for the replica that provides the copy.
    pub fn copy_ranges(&self, sizes: CopyRangeSizes) -> Result<Vec<CopyRange>, RestoreError> {
        if self.present == PresentRows::Replaced {
            return Ok(Vec::new());
        }
        Ok(CopyRange::after(&self.shard.snapshot()?, self.after(), sizes)?)
    }

    /// Applies `difference` to the next rows; `copy_ranges` are the ranges that were sent.
    pub fn take(&mut self, copy_ranges: &[CopyRange], difference: Difference) -> Result<(), RestoreError> {
        let belongs = |(key, _): &(PrimaryKey, Bytes)| self.shard.shard_range().range.contains(key);
        let ends = [difference.rows.first(), difference.rows.last()];
        if self.is_whole
            || !difference.fits(self.after(), copy_ranges)
            || !ends.into_iter().flatten().all(belongs)
        {
            return Err(RestoreError::Misfit);
        }
        let kept = &copy_ranges[..difference.same];
        let known = kept.last().map(|copy_range| &copy_range.last);
        if let Some(last) = known {
            self.add_index_entries(&range_after(self.after(), Some(last)))?;
        }
        let range = range_after(known.or(self.after()), difference.reach.as_ref());
        let is_in_copy = |key: &PrimaryKey| difference.rows.binary_search_by(|(new, _)| new.cmp(key)).is_ok();
        match self.present {
            PresentRows::Compared => {
                delete_rows(self.shard, &self.shard.snapshot()?, &range, |key| !is_in_copy(key))?;
            }
            PresentRows::Replaced => replace_rows(self.shard, &range)?,
        }
        self.rows +=
            kept.iter().map(|copy_range| copy_range.rows).sum::<u64>() + difference.rows.len() as u64;
        self.put_rows(difference.rows)?;
        self.is_whole = difference.reach.is_none();
        self.after = difference.reach;
        Ok(())
    }

    /// Adds the index entries of rows that stay.
    fn add_index_entries(&self, range: &KeyRange) -> Result<(), RestoreError> {
        if self.indexes.is_empty() {
            return Ok(());
        }
        let table = self.shard.table();
        let mut scan = self.shard.snapshot()?.scan(range, Direction::Ascending).to_the_end();
        while let Some(batch) = scan.next_batch()? {
            let mut changes = Changes::default();
            for i in 0..batch.len() {
                let (key, object) = batch.row(i)?;
                for entry in index::changes(&self.indexes, None, Some(&object)) {
                    changes.add_index(table.id(), &key, &entry);
                }
            }
            table.store().write(changes)?;
        }
        Ok(())
    }

    /// Writes rows of the copy, with their index entries.
    fn put_rows(&self, rows: Vec<(PrimaryKey, Bytes)>) -> Result<(), RestoreError> {
        let (mut changes, table) = (Changes::default(), self.shard.table());
        for (key, stored) in rows {
            let object = row::decode(stored.clone()).map_err(|_| RestoreError::Damaged)?;
            for entry in index::changes(&self.indexes, None, Some(&object)) {
                changes.add_index(table.id(), &key, &entry);
            }
            changes.add(table.id(), &RowChange { key, row: Some(stored), existed: false });
        }
        Ok(table.store().write(changes)?)
    }

    /// Makes the rows the state of the shard, durably. Fails unless all of them are as in the copy.
    pub fn finish(self) -> Result<(), RestoreError> {
        if !self.is_whole {
            return Err(RestoreError::Misfit);
        }
        if self.present == PresentRows::Replaced {
            // Some of its rows may have been deleted past it.
            self.shard.table().store().forget_cached();
        }
        let known = self.shard.indexes();
        let (table, group) = (self.shard.table().id(), self.shard.group());
        let CopyEnd { at, progress, builds } = self.end;
        let mut batch = Batch::new();
        // Also removes records of index builds from entries that were lost.
        storage::forget_group(&mut batch, table, group);
        // It may have entries that the group has lost. The copy's history begins where the copy was made.
        HistoryRecord::forget(&mut batch, group);
        Applied { lsn: at, progress }.put(&mut batch, group);
        Count(self.rows).put(&mut batch, table, group);
        // Indexes dropped meanwhile get no record.
        let is_known = |(index, _): &&(IndexId, IndexBuild)| known.iter().any(|known| known.id() == *index);
        for (index, build) in builds.iter().filter(is_known) {
            build.put(&mut batch, table, group, *index);
        }
        let engine = self.shard.table().store().engine();
        engine.write(batch)?;
        engine.flush()?;
        Ok(self.shard.reload()?)
    }
}

fn delete_rows(
    shard: &Shard,
    snapshot: &TableSnapshot,
    range: &KeyRange,
    is_removed: impl Fn(&PrimaryKey) -> bool,
) -> Result<(), RestoreError> {
    let mut scan = snapshot.scan(range, Direction::Ascending).to_the_end();
    while let Some(batch) = scan.next_batch()? {
        let mut changes = Changes::default();
        for key in (0..batch.len()).map(|i| batch.key(i)).filter(&is_removed) {
            changes.add(shard.table().id(), &RowChange { key, row: None, existed: true });
        }
        shard.table().store().write(changes)?;
    }
    Ok(())
}

fn clear_entries(shard: &Shard, snapshot: &TableSnapshot) -> Result<(), RestoreError> {
    let (store, table) = (shard.table().store(), shard.table().id());
    let (mut changes, mut pending) = (Changes::default(), 0);
    for index in shard.indexes().iter() {
        let (all, rows) = (IndexRange::all(), KeyRange::all());
        let mut scan = snapshot.scan_index(index.id(), &all, &rows, Direction::Ascending);
        while let Some(hit) = scan.next()? {
            let gone = IndexChange { index: index.id(), key: hit.key, entry: None };
            changes.add_index(table, &hit.primary, &gone);
            pending += 1;
            if pending % BATCH_CHANGES == 0 {
                store.write(std::mem::take(&mut changes))?;
            }
        }
    }
    Ok(store.write(changes)?)
}
