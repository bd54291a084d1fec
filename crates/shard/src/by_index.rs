//! Reading a shard by one of its indexes.

use std::sync::Arc;

use storage::{IndexBuild, IndexId};

use crate::Shard;
use crate::index::{IndexDef, IndexError, IndexQuery, IndexRows, ShapeIndex};

impl Shard {
    /// Begins to read rows by an index, as they are now. Fails unless the index is built, and for one
    /// of shapes, whose keys have no order to speak of.
    pub fn read_index(&self, query: &IndexQuery) -> Result<IndexRows, IndexError> {
        let index = self.built_index(query.index, Keys::Values)?;
        // After the look at the build: what it promises is in the snapshot.
        IndexRows::new(self.snapshot()?, index, query)
    }

    /// Begins to read rows by an index of shapes, as they are now. Fails unless the index is built.
    pub fn read_shapes(&self, index: IndexId) -> Result<ShapeIndex, IndexError> {
        let index = self.built_index(index, Keys::Cells)?;
        Ok(ShapeIndex::new(self.snapshot()?, index))
    }

    fn built_index(&self, id: IndexId, keys: Keys) -> Result<Arc<IndexDef>, IndexError> {
        let indexes = self.indexes();
        let is_it =
            |index: &&Arc<IndexDef>| index.id() == id && index.kind().is_geo() == (keys == Keys::Cells);
        let index = indexes.iter().find(is_it).ok_or(IndexError::Missing(id))?;
        if self.index_build(id) != IndexBuild::Ready {
            return Err(IndexError::NotReady(id));
        }
        Ok(Arc::clone(index))
    }
}

/// What the keys of an index are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    Values,
    Cells,
}
