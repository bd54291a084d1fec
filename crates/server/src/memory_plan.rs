//! How the memory of the process is divided: what caches and memtables may take is set aside, and
//! what is left is the budget of queries, cursors and connections.

use crate::config::{Config, MemoryLimit, available_bytes, total_bytes};
use crate::start_error::StartError;

/// Rows that were read lately take this part of the cache's size; the engine's blocks take the rest.
const ROW_CACHE_DIVISOR: u64 = 2;
/// Memtables take this part of the cache's size, within bounds.
const WRITE_BUFFER_DIVISOR: u64 = 4;
const WRITE_BUFFER_BYTES_MIN: u64 = 32 << 20;
const WRITE_BUFFER_BYTES_MAX: u64 = 256 << 20;
/// Of those, so much is gathered before the engine on disk gets it; as much again may be on its way, and be
/// copied for it.
const GATHERED_DIVISOR: u64 = 16;
const GATHERED_COPIES: u64 = 3;

/// What the program itself takes: its code, stacks, readers of tables, buffers of the log.
const BASE_BYTES: u64 = 96 << 20;

/// Less than this for queries is not worth starting with.
const QUERY_BYTES_MIN: u64 = 32 << 20;

/// Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    /// All caches together, as configured.
    pub cache: u64,
    /// Of the cache: rows that were read lately.
    pub rows: u64,
    /// Of the cache: blocks of the engine.
    pub blocks: u64,
    /// Memtables, without what is gathered for them.
    pub write_buffer: u64,
    /// What is gathered for memtables; with what is on its way it may take three times as much.
    pub gathered: u64,
    /// What queries, cursors and connections may take together.
    pub queries: u64,
}

impl MemoryPlan {
    /// The plan for this machine as it is now. Fails when nothing would be left for queries.
    pub fn new(config: &Config) -> Result<MemoryPlan, StartError> {
        MemoryPlan::of(config, available_bytes(), total_bytes().unwrap_or(u64::MAX / 5))
    }

    fn of(config: &Config, available: u64, total: u64) -> Result<MemoryPlan, StartError> {
        MemoryPlan::divide(config.cache.bytes(available), config.memory, total)
    }

    /// The plan for caches of `cache` bytes on a machine with `total`. Fails when `limit` leaves nothing
    /// for queries.
    pub fn divide(cache: u64, limit: MemoryLimit, total: u64) -> Result<MemoryPlan, StartError> {
        let is_auto = limit == MemoryLimit::Auto;
        let rows = cache / ROW_CACHE_DIVISOR;
        let write_buffer =
            (cache / WRITE_BUFFER_DIVISOR).clamp(WRITE_BUFFER_BYTES_MIN, WRITE_BUFFER_BYTES_MAX);
        let limit = limit.bytes(total);
        let gathered = write_buffer / GATHERED_DIVISOR;
        let taken = cache + write_buffer + BASE_BYTES;
        let queries = match limit.saturating_sub(taken) {
            left if left >= QUERY_BYTES_MIN => left,
            // A default must not keep a small machine from starting.
            _ if is_auto => QUERY_BYTES_MIN,
            _ => return Err(StartError::MemoryLimit { limit_mb: limit >> 20, least_mb: least_mb(taken) }),
        };
        let write_buffer = write_buffer - GATHERED_COPIES * gathered;
        Ok(MemoryPlan { cache, rows, blocks: cache - rows, write_buffer, gathered, queries })
    }
}

fn least_mb(taken: u64) -> u64 {
    (taken + QUERY_BYTES_MIN).div_ceil(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Setting;

    const MB: u64 = 1 << 20;

    fn plan(flags: &[(&str, &str)], available_mb: u64, total_mb: u64) -> Result<MemoryPlan, StartError> {
        let settings = flags.iter().map(|(name, value)| Setting::flag(*name, Some((*value).to_owned())));
        let config = Config::from_settings(settings.collect()).unwrap();
        MemoryPlan::of(&config, available_mb * MB, total_mb * MB)
    }

    #[test]
    fn queries_get_what_caches_leave() {
        let given = plan(&[("cache-size", "100"), ("memory-limit", "400")], 2000, 4000).unwrap();
        assert_eq!((given.rows, given.blocks), (50 * MB, 50 * MB));
        assert_eq!((given.write_buffer, given.gathered), (26 * MB, 2 * MB));
        assert_eq!(given.queries, (400 - 100 - 32 - 96) * MB);
        let auto = plan(&[], 3024, 4000).unwrap();
        assert_eq!((auto.cache, auto.queries), (1000 * MB, (3200 - 1000 - 250 - 96) * MB));
    }

    #[test]
    fn a_limit_below_the_caches_is_refused_and_a_small_machine_is_not() {
        let error = plan(&[("cache-size", "100"), ("memory-limit", "200")], 2000, 4000).unwrap_err();
        assert!(error.to_string().contains("at least 260"), "{error}");
        assert_eq!(plan(&[], 100, 256).unwrap().queries, QUERY_BYTES_MIN);
    }
}
