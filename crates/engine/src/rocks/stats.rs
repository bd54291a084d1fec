//! Sizes of the engine on disk, from RocksDB's own properties.

use std::sync::atomic::Ordering::Relaxed;

use rocksdb::properties::{
    ACTUAL_DELAYED_WRITE_RATE, ESTIMATE_NUM_KEYS, ESTIMATE_PENDING_COMPACTION_BYTES,
    ESTIMATE_TABLE_READERS_MEM, IS_WRITE_STOPPED, NUM_RUNNING_COMPACTIONS, NUM_RUNNING_FLUSHES,
    NUM_SNAPSHOTS, PropName, SIZE_ALL_MEM_TABLES,
};
use rocksdb::{Cache, DB};

use super::column;
use super::flushes::WrittenBytes;
use crate::{CompressionStats, EngineStats, LevelStats, MemoryStats, Space, WrittenStats};

/// Bytes of all large-value files. RocksDB has this property, but the wrapper crate does not name it.
pub(super) const LIVE_BLOB_FILE_BYTES: &std::ffi::CStr = c"rocksdb.live-blob-file-size";

pub(super) fn collect(db: &DB, cache: &Cache, written: &WrittenBytes) -> EngineStats {
    let whole = |property: &PropName| db.property_int_value(property).ok().flatten().unwrap_or(0);
    let large_values = db.property_int_value_cf(column(db, Space::Rows), LIVE_BLOB_FILE_BYTES);
    EngineStats {
        levels: levels(db),
        large_value_bytes: large_values.ok().flatten().unwrap_or(0),
        memory: memory(db, cache),
        keys_estimate: over_spaces(db, ESTIMATE_NUM_KEYS),
        compaction_pending_bytes: over_spaces(db, ESTIMATE_PENDING_COMPACTION_BYTES),
        background_running: whole(NUM_RUNNING_COMPACTIONS) + whole(NUM_RUNNING_FLUSHES),
        writes_stalled: whole(IS_WRITE_STOPPED) + whole(ACTUAL_DELAYED_WRITE_RATE) > 0,
        snapshots: whole(NUM_SNAPSHOTS),
        compression: CompressionStats::default(),
        written: WrittenStats {
            flush: written.flush.load(Relaxed),
            compaction: written.compaction.load(Relaxed),
            large_values: written.large_values.load(Relaxed),
        },
    }
}

pub(super) fn memory(db: &DB, cache: &Cache) -> MemoryStats {
    MemoryStats {
        block_cache: cache.get_usage() as u64,
        block_cache_pinned: cache.get_pinned_usage() as u64,
        memtables: over_spaces(db, SIZE_ALL_MEM_TABLES),
        table_readers: over_spaces(db, ESTIMATE_TABLE_READERS_MEM),
        compression: 0,
    }
}

fn over_spaces(db: &DB, property: &PropName) -> u64 {
    let one = |space| db.property_int_value_cf(column(db, space), property);
    Space::ALL.into_iter().map(|space| one(space).ok().flatten().unwrap_or(0)).sum()
}

fn levels(db: &DB) -> Vec<LevelStats> {
    let mut levels: Vec<LevelStats> = Vec::new();
    for file in db.live_files().unwrap_or_default() {
        let level = usize::try_from(file.level).unwrap_or(0);
        if levels.len() <= level {
            levels.resize(level + 1, LevelStats::default());
        }
        levels[level].files += 1;
        levels[level].bytes += file.size as u64;
    }
    levels
}
