//! The sizes of a table on this node.

use std::sync::Arc;

use cluster::TableHandle;
use datum::{Datum, Object, Text};
use shard::Shard;

use crate::service::Service;

/// Estimated sizes of a table, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TableSizes {
    /// The JSON texts of the rows.
    pub logical: f64,
    /// The rows as they are stored.
    pub rows: f64,
    /// The entries of all indexes.
    pub indexes: f64,
    /// The dictionaries with which rows are compressed.
    pub dictionaries: f64,
}

impl TableSizes {
    /// The sizes of the replicas on this node. A replica that cannot be read has none.
    pub fn of(service: &Service, table: &TableHandle) -> TableSizes {
        let (mut sizes, mut rows) = (TableSizes::default(), 0);
        let mut largest: Option<&Shard> = None;
        for shard in table.shards().iter().filter_map(|shard| shard.local()) {
            rows += shard.count();
            largest = largest.filter(|largest| largest.count() >= shard.count()).or(Some(&**shard));
            let Ok(snapshot) = shard.snapshot() else { continue };
            sizes.rows += snapshot.bytes_in(shard.range()).unwrap_or(0) as f64;
            // All shards of the table share them.
            sizes.indexes = snapshot.index_bytes().unwrap_or(0) as f64;
            sizes.dictionaries = snapshot.dictionary_bytes().unwrap_or(0) as f64;
        }
        let sample = || {
            let snapshot = largest.and_then(|shard| shard.snapshot().ok());
            snapshot.and_then(|snapshot| snapshot.mean_text_bytes().ok()).unwrap_or(0.0)
        };
        let now = service.node().clock().now();
        let mean = service.row_lengths.mean_bytes(table.config.id, now, rows, sample);
        sizes.logical = (mean * rows as f64).round();
        sizes
    }

    /// All that is stored for the table.
    pub fn disk(&self) -> f64 {
        self.rows + self.indexes + self.dictionaries
    }

    /// Both sizes with their ratio, as users see them.
    pub fn summary(logical: f64, disk: f64) -> Object {
        let ratio = if logical > 0.0 { disk / logical } else { 0.0 };
        let ratio = (ratio * 1000.0).round() / 1000.0;
        [("disk_bytes", disk), ("logical_bytes", logical), ("ratio", ratio)]
            .into_iter()
            .map(|(name, value)| (Text::from_static(name), Datum::Number(value)))
            .collect()
    }
}

/// The sizes of a table on this node, for the metrics page.
pub struct NamedTableSizes {
    pub db: Text,
    pub table: Text,
    /// Estimated bytes of the JSON texts of its rows.
    pub logical_bytes: f64,
    /// Estimated bytes of all that is stored for it.
    pub disk_bytes: f64,
}

/// The sizes of all tables that have rows on this node.
#[must_use]
pub fn table_sizes(service: &Service) -> Vec<NamedTableSizes> {
    let catalog = service.node().catalog();
    let named = |table: &Arc<TableHandle>| {
        let sizes = TableSizes::of(service, table);
        (sizes.logical > 0.0).then(|| NamedTableSizes {
            db: table.db.name.clone(),
            table: table.config.name.clone(),
            logical_bytes: sizes.logical,
            disk_bytes: sizes.disk(),
        })
    };
    catalog.tables().into_iter().filter_map(named).collect()
}
