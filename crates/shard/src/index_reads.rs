//! Reading a shard by one of its indexes.

use std::sync::Arc;

use datum::KeyRange;
use storage::{IndexBuild, IndexId, TableSnapshot};

use crate::Shard;
use crate::index::{GeoIndexReader, IndexDef, IndexError, IndexQuery, IndexRows};

impl Shard {
    /// Begins to read rows by an index, as they are now. Fails unless the index is built, and for one
    /// of shapes, whose keys have no order to speak of.
    pub fn read_index(&self, query: &IndexQuery) -> Result<IndexRows, IndexError> {
        let (index, snapshot) = self.built_index(query.index, Keys::Values)?;
        IndexRows::new(snapshot, index, query)
    }

    /// Begins to read those rows whose keys lie in `rows` by an index of shapes, as they are now. Fails unless the index
    /// is built.
    pub fn read_shapes(&self, index: IndexId, rows: KeyRange) -> Result<GeoIndexReader, IndexError> {
        let (index, snapshot) = self.built_index(index, Keys::Cells)?;
        Ok(GeoIndexReader::new(snapshot, index, rows))
    }

    /// The index, and the rows with all of its entries.
    fn built_index(&self, id: IndexId, keys: Keys) -> Result<(Arc<IndexDef>, TableSnapshot), IndexError> {
        self.known_index(id, keys)?;
        if self.index_build(id) != IndexBuild::Ready {
            return Err(IndexError::NotReady(id));
        }
        // After the look at the build: what it promises is in the snapshot.
        let snapshot = self.snapshot()?;
        // Looked at afterwards: the entries of an index that goes are erased when it is not known any more.
        Ok((self.known_index(id, keys)?, snapshot))
    }

    fn known_index(&self, id: IndexId, keys: Keys) -> Result<Arc<IndexDef>, IndexError> {
        let indexes = self.indexes();
        let is_it =
            |index: &&Arc<IndexDef>| index.id() == id && index.kind().is_geo() == (keys == Keys::Cells);
        indexes.iter().find(is_it).cloned().ok_or(IndexError::Missing(id))
    }
}

/// What the keys of an index are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    Values,
    Cells,
}
