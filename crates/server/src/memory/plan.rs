//! How the memory of the process is divided: caches and memtables get fixed sizes, and the rest is the budget of
//! queries, cursors and connections.

use std::ops::RangeInclusive;

use crate::config::{CACHE_BYTES_MIN, CacheSize, Config, MemoryLimit, available_bytes, total_bytes};

/// The cache of recently read rows gets this fraction of the cache size; the engine's block cache gets the rest.
const ROW_CACHE_DIVISOR: u64 = 2;
/// Memtables and write buffers together get this fraction of the cache size, within bounds.
const MEMTABLE_DIVISOR: u64 = 4;
const MEMTABLE_BYTES_MIN: u64 = 32 << 20;
const MEMTABLE_BYTES_MAX: u64 = 256 << 20;
/// The write buffer before the engine on disk gets this fraction of the memtables' bytes. Up to three such buffers
/// exist at once: the one that is filled, one that is on its way to the engine, and the engine's copy of that one.
const WRITE_BUFFER_DIVISOR: u64 = 16;
/// Upper bound of the write buffer. The allocator would return a copy of 8 MB to the system each time and request it
/// again (`docs/decisions/0043-memory-reuse.md`). A copy may be a sixteenth longer, and is rounded up to whole
/// megabytes.
const WRITE_BUFFER_BYTES_MAX: u64 = 6 << 20;
const WRITE_BUFFER_COPIES: u64 = 3;

/// Memory of the program itself: code, stacks, table readers, log buffers.
const BASE_BYTES: u64 = 96 << 20;

/// The server does not start with less than this for queries.
const QUERY_BYTES_MIN: u64 = 32 << 20;

/// `--memory-limit` leaves no memory for queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--memory-limit {limit_mb} leaves nothing for queries; with this cache it must be at least \
     {least_mb}, or make the cache smaller with --cache-size"
)]
pub struct MemoryLimitTooLow {
    /// The given limit, in megabytes.
    pub limit_mb: u64,
    /// The lowest limit that works with this cache.
    pub least_mb: u64,
}

/// Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    /// The limit of the process.
    pub limit: u64,
    /// All caches together, as configured.
    pub cache: u64,
    /// Part of the cache: recently read rows.
    pub rows: u64,
    /// Part of the cache: blocks of the engine.
    pub blocks: u64,
    /// Memtables, without the write buffers before them.
    pub memtables: u64,
    /// One write buffer before the memtables. Up to three of this size may exist at a time.
    pub write_buffer: u64,
    /// The budget of queries, cursors and connections together.
    pub queries: u64,
    /// The largest size that can be configured for all caches together.
    pub cache_most: u64,
}

impl MemoryPlan {
    /// The plan for this machine in its present state. Fails when nothing would be left for queries.
    pub fn new(config: &Config) -> Result<MemoryPlan, MemoryLimitTooLow> {
        let plan = MemoryPlan::of(config, available_bytes(), of_machine())?;
        if let CacheSize::Megabytes(asked) = config.cache
            && plan.cache >> 20 < asked
        {
            tracing::warn!("{}", bounded(&format!("--cache-size {asked}"), plan.cache));
        }
        Ok(plan)
    }

    fn of(config: &Config, available: u64, total: u64) -> Result<MemoryPlan, MemoryLimitTooLow> {
        let limit = config.memory;
        let cache = match (config.cache, limit) {
            // A size that does not fit is an error that says what to change.
            (CacheSize::Megabytes(_), MemoryLimit::Megabytes(_)) => config.cache.bytes(available),
            _ => MemoryPlan::fit(config.cache, limit, available, total),
        };
        MemoryPlan::divide(cache, limit, total)
    }

    /// The cache size in bytes for `wanted`, where `available` bytes of `total` are free: never more than `limit`
    /// leaves beside queries. An automatic size also leaves half of an explicit limit.
    pub fn fit(wanted: CacheSize, limit: MemoryLimit, available: u64, total: u64) -> u64 {
        let most = MemoryPlan::cache_most(limit, total);
        match (wanted, limit) {
            (CacheSize::Auto, MemoryLimit::Megabytes(megabytes)) => {
                wanted.bytes(available).min((megabytes << 20) / 2).clamp(CACHE_BYTES_MIN, most)
            }
            _ => wanted.bytes(available).clamp(CACHE_BYTES_MIN, most),
        }
    }

    /// The largest cache size for which `limit` leaves enough memory on a machine with `total`; at least the minimum
    /// size.
    pub fn cache_most(limit: MemoryLimit, total: u64) -> u64 {
        let room = limit.bytes(total).saturating_sub(BASE_BYTES + QUERY_BYTES_MIN);
        let share = room / (MEMTABLE_DIVISOR + 1) * MEMTABLE_DIVISOR;
        let beside = (share / MEMTABLE_DIVISOR).clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX);
        // In whole megabytes, the unit of the setting.
        (room.saturating_sub(beside) >> 20 << 20).max(CACHE_BYTES_MIN)
    }

    /// The plan for caches of `cache` bytes on a machine with `total`. Fails when `limit` leaves nothing
    /// for queries.
    pub fn divide(cache: u64, limit: MemoryLimit, total: u64) -> Result<MemoryPlan, MemoryLimitTooLow> {
        let is_auto = limit == MemoryLimit::Auto;
        let rows = MemoryPlan::rows_of(cache);
        let memtables = memtable_share_of(cache);
        let cache_most = MemoryPlan::cache_most(limit, total);
        let limit = limit.bytes(total);
        let write_buffer = (memtables / WRITE_BUFFER_DIVISOR).min(WRITE_BUFFER_BYTES_MAX);
        let taken = cache + memtables + BASE_BYTES;
        let queries = match limit.saturating_sub(taken) {
            left if left >= QUERY_BYTES_MIN => left,
            // The default limit must not keep a small machine from starting.
            _ if is_auto => QUERY_BYTES_MIN,
            _ => return Err(MemoryLimitTooLow { limit_mb: limit >> 20, least_mb: least_mb(taken) }),
        };
        let memtables = memtables - WRITE_BUFFER_COPIES * write_buffer;
        let blocks = cache - rows;
        Ok(MemoryPlan { limit, cache, rows, blocks, memtables, write_buffer, queries, cache_most })
    }

    /// The part for rows of caches of `cache` bytes.
    pub fn rows_of(cache: u64) -> u64 {
        cache / ROW_CACHE_DIVISOR
    }

    /// The sizes that can be configured for all caches together, in megabytes.
    pub fn cache_mb_range(&self) -> RangeInclusive<u64> {
        CACHE_BYTES_MIN >> 20..=self.cache_most >> 20
    }
}

/// The memory of this machine or container in bytes.
pub(crate) fn of_machine() -> u64 {
    total_bytes().unwrap_or(u64::MAX / 5)
}

/// The warning that the setting `what` is larger than the memory allows, so that the caches get `cache` bytes.
pub(crate) fn bounded(what: &str, cache: u64) -> String {
    format!("{what} exceeds what --memory-limit and this machine allow: the cache size is {} MB", cache >> 20)
}

fn memtable_share_of(cache: u64) -> u64 {
    (cache / MEMTABLE_DIVISOR).clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX)
}

fn least_mb(taken: u64) -> u64 {
    (taken + QUERY_BYTES_MIN).div_ceil(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Setting;

    const MB: u64 = 1 << 20;

    fn plan(
        flags: &[(&str, &str)],
        available_mb: u64,
        total_mb: u64,
    ) -> Result<MemoryPlan, MemoryLimitTooLow> {
        let settings = flags.iter().map(|(name, value)| Setting::flag(*name, Some((*value).to_owned())));
        let config = Config::from_settings(settings.collect()).unwrap();
        MemoryPlan::of(&config, available_mb * MB, total_mb * MB)
    }

    #[test]
    fn queries_get_the_memory_that_caches_do_not_use() {
        let given = plan(&[("cache-size", "100"), ("memory-limit", "400")], 2000, 4000).unwrap();
        assert_eq!((given.rows, given.blocks), (50 * MB, 50 * MB));
        assert_eq!((given.memtables, given.write_buffer), (26 * MB, 2 * MB));
        assert_eq!(given.queries, (400 - 100 - 32 - 96) * MB);
        let auto = plan(&[], 3024, 4000).unwrap();
        assert_eq!((auto.cache, auto.queries), (1000 * MB, (3200 - 1000 - 250 - 96) * MB));
    }

    #[test]
    fn the_write_buffer_fits_in_memory_that_the_allocator_keeps() {
        let large = plan(&[("cache-size", "1024")], 8000, 16000).unwrap();
        assert_eq!((large.memtables, large.write_buffer), ((256 - 3 * 6) * MB, 6 * MB));
    }

    #[test]
    fn a_limit_below_the_caches_is_refused_and_a_small_machine_is_not() {
        let error = plan(&[("cache-size", "100"), ("memory-limit", "200")], 2000, 4000).unwrap_err();
        assert!(error.to_string().contains("at least 260"), "{error}");
        assert_eq!(plan(&[], 100, 256).unwrap().queries, QUERY_BYTES_MIN);
    }

    #[test]
    fn a_cache_that_may_choose_fits_itself_into_the_limit() {
        let given = plan(&[("memory-limit", "2000")], 24_000, 24_000).unwrap();
        assert_eq!((given.cache, given.queries), (1000 * MB, (2000 - 1000 - 250 - 96) * MB));
        for limit in ["260", "300", "400", "900", "5000", "20000"] {
            let given = plan(&[("memory-limit", limit)], 24_000, 24_000).unwrap();
            assert!(given.cache >= 100 * MB && given.queries >= QUERY_BYTES_MIN, "{limit}: {given:?}");
        }
        let error = plan(&[("memory-limit", "200")], 24_000, 24_000).unwrap_err();
        assert!(error.to_string().contains("at least 260"), "{error}");
    }

    #[test]
    fn no_cache_is_larger_than_the_machine_allows() {
        let (auto, total) = (MemoryLimit::Auto, 24_000 * MB);
        let fit = MemoryPlan::fit(CacheSize::Megabytes(1_000_000_000), auto, 20_000 * MB, total);
        let given = MemoryPlan::divide(fit, auto, total).unwrap();
        assert_eq!((given.cache, given.queries >> 20), ((19_200 - 96 - 32 - 256) * MB, 32));
        let limit = MemoryLimit::Megabytes(600);
        let fit =
            |megabytes| MemoryPlan::fit(CacheSize::Megabytes(megabytes), limit, 20_000 * MB, 24_000 * MB);
        assert_eq!((fit(1_000_000_000), fit(0), fit(200)), (377 * MB, 100 * MB, 200 * MB));
        for megabytes in [260, 288, 289, 500, 1407, 1408, 1409, 3000, 100_000] {
            let limit = MemoryLimit::Megabytes(megabytes);
            let most = MemoryPlan::cache_most(limit, 0);
            assert!(MemoryPlan::divide(most, limit, 0).is_ok(), "{megabytes}");
            assert!(MemoryPlan::divide(most + 2 * MB, limit, 0).is_err(), "{megabytes}: {most}");
        }
    }
}
