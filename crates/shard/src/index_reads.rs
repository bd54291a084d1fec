//! Reads of a shard by one of its indexes.

use std::sync::Arc;

use datum::KeyRange;
use storage::{IndexBuild, IndexId, TableSnapshot};

use crate::Shard;
use crate::index::{GeoIndexReader, IndexDef, IndexError, IndexQuery, IndexRows};

impl Shard {
    /// Starts reading rows by an index, as they are now. Fails unless the index is built, and for a geospatial index,
    /// whose keys have no meaningful order.
    pub fn read_index(&self, query: &IndexQuery) -> Result<IndexRows, IndexError> {
        let (index, snapshot) = self.built_index(query.index, Keys::Values)?;
        IndexRows::new(snapshot, index, query)
    }

    /// Starts reading the rows whose keys lie in `rows` by a geospatial index, as they are now. Fails unless the index
    /// is built.
    pub fn read_shapes(&self, index: IndexId, rows: KeyRange) -> Result<GeoIndexReader, IndexError> {
        let (index, snapshot) = self.built_index(index, Keys::Cells)?;
        Ok(GeoIndexReader::new(snapshot, index, rows))
    }

    /// The index, and a snapshot that has all of its entries.
    fn built_index(&self, id: IndexId, keys: Keys) -> Result<(Arc<IndexDef>, TableSnapshot), IndexError> {
        self.known_index(id, keys)?;
        if self.index_build(id) != IndexBuild::Ready {
            return Err(IndexError::NotReady(id));
        }
        // Taken after the build was checked, so that the snapshot has all entries.
        let snapshot = self.snapshot()?;
        // Checked again afterwards: the entries of a dropped index are deleted once the shard no longer knows it.
        Ok((self.known_index(id, keys)?, snapshot))
    }

    fn known_index(&self, id: IndexId, keys: Keys) -> Result<Arc<IndexDef>, IndexError> {
        let indexes = self.indexes();
        let is_it =
            |index: &&Arc<IndexDef>| index.id() == id && index.kind().is_geo() == (keys == Keys::Cells);
        indexes.iter().find(is_it).cloned().ok_or(IndexError::Missing(id))
    }
}

/// The kind of an index's keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    Values,
    Cells,
}
