//! The rows of a shard taken away, or replaced by a copy. Nothing is applied meanwhile: the log sees
//! to that.

use bytes::Bytes;
use datum::{KeyRange, PrimaryKey, row};
use engine::{Batch, EngineError};
use log::Lsn;
use storage::{
    Applied, Changes, Count, Direction, IndexBuild, IndexChange, IndexId, IndexSpan, ReadError, RowChange,
};

use crate::{Shard, index};

/// Changes in one batch of the engine.
const BATCH: usize = 1000;

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
}

/// What a copy is besides its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyEnd {
    /// Its position in the log.
    pub at: Lsn,
    /// What goes with that.
    pub progress: Bytes,
    /// How many rows it has.
    pub rows: u64,
    /// How far its indexes are built.
    pub builds: Vec<(IndexId, IndexBuild)>,
}

impl Shard {
    /// Removes the rows of `range` within this shard and their index entries.
    pub fn clear(&self, range: &KeyRange) -> Result<(), RestoreError> {
        let (store, table) = (self.table().store(), self.table().id());
        let mut part = self.part().clone();
        part.range = part.range.intersect(range);
        let snapshot = self.table().snapshot(part.clone())?;
        let (mut changes, mut pending) = (Changes::default(), 0);
        for index in self.indexes().iter() {
            let mut scan = snapshot.scan_index(index.id(), &IndexSpan::all(), Direction::Ascending);
            while let Some(hit) = scan.next()? {
                let gone = IndexChange { index: index.id(), key: hit.key, entry: None };
                changes.add_index(table, &hit.primary, &gone);
                pending += 1;
                if pending % BATCH == 0 {
                    store.write(std::mem::take(&mut changes))?;
                }
            }
        }
        let mut scan = snapshot.scan(&part.range, Direction::Ascending).to_the_end();
        while let Some(batch) = scan.next_batch()? {
            for i in 0..batch.len() {
                changes.add(table, &RowChange { key: batch.key(i), row: None, existed: true });
            }
            store.write(std::mem::take(&mut changes))?;
        }
        Ok(store.write(changes)?)
    }

    /// Adds rows of a copy, with their index entries.
    pub fn restore_rows(&self, rows: Vec<(PrimaryKey, Bytes)>) -> Result<(), RestoreError> {
        let (mut changes, indexes) = (Changes::default(), self.indexes());
        for (key, stored) in rows {
            let object = row::decode(stored.clone()).map_err(|_| RestoreError::Damaged)?;
            for entry in index::changes(&indexes, None, Some(&object)) {
                changes.add_index(self.table().id(), &key, &entry);
            }
            changes.add(self.table().id(), &RowChange { key, row: Some(stored), existed: false });
        }
        Ok(self.table().store().write(changes)?)
    }

    /// Makes the rows that were added the state of this shard, durably.
    pub fn finish_restore(&self, end: &CopyEnd) -> Result<(), RestoreError> {
        let indexes = self.indexes();
        let unknown = |id: &IndexId| !indexes.iter().any(|index| index.id() == *id);
        if let Some((index, _)) = end.builds.iter().find(|(index, _)| unknown(index)) {
            return Err(RestoreError::Index(*index));
        }
        let (table, group) = (self.table().id(), self.group());
        let mut batch = Batch::new();
        Applied { lsn: end.at, progress: end.progress.clone() }.put(&mut batch, group);
        Count(end.rows).put(&mut batch, table, group);
        for (index, build) in &end.builds {
            build.put(&mut batch, table, group, *index);
        }
        let engine = self.table().store().engine();
        engine.write(batch)?;
        engine.flush()?;
        Ok(self.reload()?)
    }

    /// How far the indexes are built, for a copy of this shard.
    pub fn builds(&self) -> Result<Vec<(IndexId, IndexBuild)>, ReadError> {
        IndexBuild::read_all(&**self.table().store().engine(), self.table().id(), self.group())
    }
}
