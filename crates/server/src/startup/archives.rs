//! Tells the compression which tables are archives.

use std::sync::Arc;

use cluster::{Node, TableCompression};
use storage::CompressedEngine;

/// The setting `compression` of the tables in the catalog, as the compression reads it. Must be dropped before the node,
/// so that the compression, which the node owns, never owns the node.
pub struct Archives {
    compressed: Arc<CompressedEngine>,
}

impl Archives {
    /// From now on, the tables that are archives in the catalog of `node` are compressed as such.
    pub fn follow(compressed: Arc<CompressedEngine>, node: &Arc<Node>) -> Archives {
        let node = Arc::downgrade(node);
        compressed.set_is_archive(Box::new(move |table| {
            let catalog = node.upgrade().map(|node| node.catalog());
            let table = catalog.as_ref().and_then(|catalog| catalog.table_by_id(table));
            table.is_some_and(|table| table.config.compression == TableCompression::Archive)
        }));
        Archives { compressed }
    }
}

impl Drop for Archives {
    fn drop(&mut self) {
        self.compressed.set_is_archive(Box::new(|_| false));
    }
}
