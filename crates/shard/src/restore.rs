//! The rows of a shard taken away, or made those of a copy. Nothing is applied meanwhile: the log sees
//! to that.

use std::sync::Arc;

use bytes::Bytes;
use datum::{KeyRange, PrimaryKey, row};
use engine::{Batch, EngineError};
use log::Lsn;
use storage::{
    Applied, Changes, Count, Direction, IndexBuild, IndexChange, IndexId, IndexRange, ReadError, RowChange,
    TableSnapshot,
};

use crate::copy_range::range_after;
use crate::{CopyRange, CopyRangeSizes, Difference, IndexDef, Shard, index};

/// Changes in one batch of the engine.
const BATCH_CHANGES: usize = 1000;

/// Why rows could not be replaced.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// What is there could not be read, or what came is no row.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The engine did not take it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The copy has an index that is not known here yet.
    #[error("index {0} is not known here yet")]
    Index(IndexId),
    /// A row that came is damaged.
    #[error("a copied row is damaged")]
    Damaged,
    /// What came is no answer to what was asked.
    #[error("what came is no part of a copy")]
    Misfit,
}

/// What a copy is besides its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyEnd {
    /// Its position in the log.
    pub at: Lsn,
    /// What goes with that.
    pub progress: Bytes,
    /// How far its indexes are built.
    pub builds: Vec<(IndexId, IndexBuild)>,
}

/// A shard whose rows become those of a copy, from the first key to the last. Rows that are the same stay.
/// One that is not finished leaves them to the next: docs/decisions/0032-resumable-copies.md.
pub struct Restoration<'a> {
    shard: &'a Shard,
    end: CopyEnd,
    // Those that the copy has: entries of others come with the log.
    indexes: Vec<Arc<IndexDef>>,
    // Everything up to here is as in the copy.
    after: Option<PrimaryKey>,
    rows: u64,
    is_whole: bool,
}

impl Shard {
    /// Removes the rows of `range` within this shard and their index entries.
    pub fn clear(&self, range: &KeyRange) -> Result<(), RestoreError> {
        let mut shard_range = self.shard_range().clone();
        shard_range.range = shard_range.range.intersect(range);
        let snapshot = self.table().snapshot(shard_range.clone())?;
        self.clear_entries(&snapshot)?;
        self.delete_rows(&snapshot, &shard_range.range, |_| true)
    }

    /// Begins to make the rows here those of a copy: nobody may read them until that is finished. Fails if
    /// an index of the copy is not known yet; one that was dropped is left out.
    pub fn begin_restore(&self, mut end: CopyEnd) -> Result<Restoration<'_>, RestoreError> {
        // Asked before: what was given out by then and is not known afterwards was dropped, and is not new.
        let heard_of: Vec<bool> = end.builds.iter().map(|(id, _)| self.has_seen_index(*id)).collect();
        let known = self.indexes();
        let mut indexes = Vec::new();
        let find = |id: IndexId| known.iter().find(|index| index.id() == id).cloned();
        for ((id, _), is_old) in end.builds.iter().zip(heard_of) {
            match find(*id) {
                Some(index) => indexes.push(index),
                None if is_old => {}
                None => return Err(RestoreError::Index(*id)),
            }
        }
        end.builds.retain(|(id, _)| find(*id).is_some());
        self.clear_entries(&self.snapshot()?)?;
        Ok(Restoration { shard: self, end, indexes, after: None, rows: 0, is_whole: false })
    }

    fn delete_rows(
        &self,
        snapshot: &TableSnapshot,
        range: &KeyRange,
        goes: impl Fn(&PrimaryKey) -> bool,
    ) -> Result<(), RestoreError> {
        let mut scan = snapshot.scan(range, Direction::Ascending).to_the_end();
        while let Some(batch) = scan.next_batch()? {
            let mut changes = Changes::default();
            for key in (0..batch.len()).map(|i| batch.key(i)).filter(&goes) {
                changes.add(self.table().id(), &RowChange { key, row: None, existed: true });
            }
            self.table().store().write(changes)?;
        }
        Ok(())
    }

    fn clear_entries(&self, snapshot: &TableSnapshot) -> Result<(), RestoreError> {
        let (store, table) = (self.table().store(), self.table().id());
        let (mut changes, mut pending) = (Changes::default(), 0);
        for index in self.indexes().iter() {
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

    /// How far the indexes are built, for a copy of this shard.
    pub fn builds(&self) -> Result<Vec<(IndexId, IndexBuild)>, ReadError> {
        IndexBuild::read_all(&**self.table().store().engine(), self.table().id(), self.group())
    }
}

impl Restoration<'_> {
    /// Up to which key the rows are as in the copy.
    #[must_use]
    pub fn after(&self) -> Option<&PrimaryKey> {
        self.after.as_ref()
    }

    /// How many rows are as in the copy.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether all are.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The rows that are here next, for whoever gives the copy.
    pub fn copy_ranges(&self, sizes: CopyRangeSizes) -> Result<Vec<CopyRange>, RestoreError> {
        Ok(CopyRange::after(&self.shard.snapshot()?, self.after(), sizes)?)
    }

    /// Makes the next rows what `difference` says of `copy_ranges`, which are those here.
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
            self.enter_rows(&range_after(self.after(), Some(last)))?;
        }
        let range = range_after(known.or(self.after()), difference.reach.as_ref());
        let comes = |key: &PrimaryKey| difference.rows.binary_search_by(|(new, _)| new.cmp(key)).is_ok();
        self.shard.delete_rows(&self.shard.snapshot()?, &range, |key| !comes(key))?;
        self.rows +=
            kept.iter().map(|copy_range| copy_range.rows).sum::<u64>() + difference.rows.len() as u64;
        self.put_rows(difference.rows)?;
        self.is_whole = difference.reach.is_none();
        self.after = difference.reach;
        Ok(())
    }

    /// Makes the index entries of rows that stay.
    fn enter_rows(&self, range: &KeyRange) -> Result<(), RestoreError> {
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

    /// Puts rows of the copy in place, with their index entries.
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

    /// Makes the rows the state of the shard, durably. Fails before all of them are as in the copy.
    pub fn finish(self) -> Result<(), RestoreError> {
        if !self.is_whole {
            return Err(RestoreError::Misfit);
        }
        let known = self.shard.indexes();
        let (table, group) = (self.shard.table().id(), self.shard.group());
        let CopyEnd { at, progress, builds } = self.end;
        let mut batch = Batch::new();
        // Also what it was told of in entries that were lost.
        storage::forget_group(&mut batch, table, group);
        Applied { lsn: at, progress }.put(&mut batch, group);
        Count(self.rows).put(&mut batch, table, group);
        // What was dropped meanwhile is not noted.
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
