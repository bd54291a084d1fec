//! Memory and thread limits of the engine on disk, and the RocksDB options derived from them.

use rocksdb::{
    BlockBasedOptions, BlockBasedTablePinningTier, Cache, DBCompactionStyle, DBCompressionType,
    DataBlockIndexType, Options, WriteBufferManager,
};

use super::history;
use crate::Space;

/// Options of the operator. The defaults suit a node with half a gigabyte to spare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Bytes for cached blocks, indexes and filters.
    pub cache_bytes: usize,
    /// Bytes for written pairs that are not flushed yet, over all spaces.
    pub write_buffer_bytes: usize,
    /// Threads for flushing and merging.
    pub background_jobs: usize,
    /// The most files open at once; others are opened and closed as needed.
    pub open_files_max: usize,
    /// The most bytes in the files of [`Space::History`]. The oldest file is deleted when they have more.
    pub history_bytes_max: u64,
}

/// Which faults of its files an engine is opened with that is only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// All files exist and have the sizes that they should have.
    None,
    /// Files may be missing or damaged: reads of their part fail.
    Damage,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            cache_bytes: 256 << 20,
            write_buffer_bytes: 128 << 20,
            background_jobs: 2,
            open_files_max: 4096,
            history_bytes_max: 1 << 30,
        }
    }
}

/// About a dozen rows. With larger blocks a point lookup reads more rows that it does not need; with smaller blocks the pinned index is
/// larger, and a scan has more blocks to locate.
const BLOCK_BYTES: usize = 16 << 10;
/// The last step of a lookup walks over half as many keys on average, with a row of about a kilobyte between any two.
const KEYS_PER_RESTART: i32 = 8;
/// One false positive in a hundred lookups, so that an insert rarely reads the disk to find no row.
const BLOOM_BITS_PER_KEY: f64 = 10.0;
/// Rows of this size or more are stored separately and not copied when their level is merged.
const LARGE_VALUE_BYTES: u64 = 256 << 10;
/// A file is merged soon, without need otherwise, if half of its keys are deletions, or half of any so many in a row: the deleted
/// values then leave the disk although few other writes follow.
const DELETIONS_SHARE: f64 = 0.5;
const DELETIONS_WINDOW: usize = 16 << 10;
/// The share of garbage in a large-value file from which it is rewritten.
const LARGE_VALUE_GARBAGE_MAX: f64 = 0.3;
/// The share of the large-value files, the oldest ones, that are rewritten when a merge meets their values.
pub(super) const LARGE_VALUE_AGE_CUTOFF: f64 = 0.5;
const FILE_BYTES_MIN: usize = 4 << 20;
const FILE_BYTES_MAX: usize = 64 << 20;
/// So many flushed files are merged into the level below at a time: the more, the less is written, and the more files a lookup
/// and a scan have to search.
const LEVEL_0_FILES: i32 = 8;
/// Bytes after which the operating system is asked to start writing, so that no fsync takes long.
const SYNC_STEP_BYTES: u64 = 1 << 20;
const ENGINE_LOG_BYTES_MAX: usize = 4 << 20;
const ENGINE_LOG_FILES_MAX: usize = 2;

pub(super) fn block_cache(options: &EngineOptions) -> Cache {
    // Zero: the table grows with the entries, as they vary from 8 KiB blocks to filters.
    Cache::new_hyper_clock_cache(options.cache_bytes, 0)
}

pub(super) fn for_database(options: &EngineOptions) -> Options {
    let mut db = Options::default();
    db.create_if_missing(true);
    db.create_missing_column_families(true);
    // Rows and the log position they come from become durable together or not at all.
    db.set_atomic_flush(true);
    db.set_max_background_jobs(clamp_i32(options.background_jobs.max(1)));
    db.set_max_open_files(clamp_i32(options.open_files_max));
    db.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager(
        options.write_buffer_bytes,
        false,
    ));
    db.set_bytes_per_sync(SYNC_STEP_BYTES);
    db.set_avoid_unnecessary_blocking_io(true);
    db.set_skip_stats_update_on_db_open(true);
    db.set_stats_dump_period_sec(0);
    db.set_stats_persist_period_sec(0);
    db.set_max_log_file_size(ENGINE_LOG_BYTES_MAX);
    db.set_keep_log_file_num(ENGINE_LOG_FILES_MAX);
    db
}

/// The same options for an engine that is only read: nothing is created, and with [`Tolerance::Damage`] files that are
/// missing or damaged are only noticed when they are read.
pub(super) fn for_reading(options: &EngineOptions, tolerance: Tolerance) -> Options {
    let mut db = for_database(options);
    db.create_if_missing(false);
    db.create_missing_column_families(false);
    db.set_paranoid_checks(tolerance == Tolerance::None);
    db
}

pub(super) fn for_space(space: Space, options: &EngineOptions, cache: &Cache) -> Options {
    // One buffer fills while another is written out. Each space may fill a whole buffer: all spaces are flushed
    // together, so a smaller limit for one would flush all of them early.
    let buffer_bytes = options.write_buffer_bytes / 2;
    let mut column = Options::default();
    column.set_block_based_table_factory(&tables(space, cache));
    column.set_write_buffer_size(buffer_bytes);
    column.set_max_write_buffer_number(3);
    if is_looked_up(space) {
        column.set_memtable_whole_key_filtering(true);
        column.set_memtable_prefix_bloom_ratio(0.02);
    }
    column.set_compression_type(DBCompressionType::None);
    column.set_bottommost_compression_type(DBCompressionType::None);
    column.set_level_compaction_dynamic_level_bytes(true);
    column.set_target_file_size_base(buffer_bytes.clamp(FILE_BYTES_MIN, FILE_BYTES_MAX) as u64);
    column.set_level_zero_file_num_compaction_trigger(LEVEL_0_FILES);
    // The level below is as large as the files of level 0 that are merged into it.
    let level_0_bytes = LEVEL_0_FILES as u64 * buffer_bytes.max(FILE_BYTES_MIN) as u64;
    column.set_max_bytes_for_level_base(level_0_bytes);
    if space == Space::History {
        column.set_compaction_style(DBCompactionStyle::Fifo);
        column.set_fifo_compaction_options(&history::limits(options.history_bytes_max));
        column.set_ttl(0);
        // Files are only ever deleted, so that their number delays no write.
        column.set_level_compaction_dynamic_level_bytes(false);
    }
    if matches!(space, Space::Rows | Space::Index) {
        let deletions = (DELETIONS_WINDOW as f64 * DELETIONS_SHARE) as usize;
        column.add_compact_on_deletion_collector_factory(DELETIONS_WINDOW, deletions, DELETIONS_SHARE);
    }
    // In `meta`: dictionaries of rows, which would be copied whenever the small records beside them are merged.
    if matches!(space, Space::Rows | Space::Meta) {
        column.set_enable_blob_files(true);
        column.set_min_blob_size(LARGE_VALUE_BYTES);
        column.set_blob_compression_type(DBCompressionType::None);
        column.set_enable_blob_gc(true);
        column.set_blob_gc_age_cutoff(LARGE_VALUE_AGE_CUTOFF);
        column.set_blob_gc_force_threshold(LARGE_VALUE_GARBAGE_MAX);
    }
    column
}

/// Whether keys are looked up one by one. The other spaces are only scanned in order, so filters and hashes of their keys
/// would never be used.
fn is_looked_up(space: Space) -> bool {
    matches!(space, Space::Rows | Space::Meta)
}

fn tables(space: Space, cache: &Cache) -> BlockBasedOptions {
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(cache);
    tables.set_block_size(BLOCK_BYTES);
    tables.set_block_restart_interval(KEYS_PER_RESTART);
    if is_looked_up(space) {
        tables.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        tables.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
        tables.set_whole_key_filtering(true);
        tables.set_optimize_filters_for_memory(true);
    }
    // Indexes and filters count against the cache and are never evicted from it.
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_cache_index_and_filter_blocks_with_high_priority(true);
    tables.set_unpartitioned_pinning_tier(BlockBasedTablePinningTier::All);
    tables
}

fn clamp_i32(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
