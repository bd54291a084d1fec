//! The newest rows of a table.

use std::sync::Arc;

use bytes::Bytes;
use datum::{Object, PrimaryKey};
use engine::{Engine, Space};

use crate::layout::RowKey;
use crate::row::decode;
use crate::{Part, ReadError, TableId, TableSnapshot};

/// A table in an engine. Cheap to make and to clone; holds no rows itself.
#[derive(Clone)]
pub struct Table {
    engine: Arc<dyn Engine>,
    id: TableId,
}

impl Table {
    /// The table `id` in `engine`, which may hold no row of it yet.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, id: TableId) -> Table {
        Table { engine, id }
    }

    /// The table's id.
    #[must_use]
    pub fn id(&self) -> TableId {
        self.id
    }

    /// The row under `key`, its checksum verified, or `None` if there is none.
    pub fn get(&self, key: &PrimaryKey) -> Result<Option<Object>, ReadError> {
        let bytes = self.get_bytes(key)?;
        bytes.map(|bytes| decode(self.id, key, bytes)).transpose()
    }

    /// The stored bytes of the row under `key`, not verified.
    pub fn get_bytes(&self, key: &PrimaryKey) -> Result<Option<Bytes>, ReadError> {
        let row_key = RowKey::new(self.id, key.as_bytes());
        Ok(self.engine.get(Space::Rows, row_key.as_bytes())?)
    }

    /// The rows of `part` as they are now.
    pub fn snapshot(&self, part: Part) -> Result<TableSnapshot, ReadError> {
        Ok(TableSnapshot::new(self.engine.snapshot()?, self.id, part))
    }
}
