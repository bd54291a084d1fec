//! How much memory and how many threads the engine on disk may take.

/// The operator's choices. The defaults suit a node with a gigabyte to spare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Bytes for cached blocks, indexes and filters.
    pub cache_bytes: usize,
    /// Bytes for written pairs that are not flushed yet, over all spaces.
    pub write_buffer_bytes: usize,
    /// Threads for flushing and merging.
    pub background_jobs: usize,
    /// Files held open at once; more are opened and closed as they are needed.
    pub open_files_max: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            cache_bytes: 256 << 20,
            write_buffer_bytes: 128 << 20,
            background_jobs: 2,
            open_files_max: 4096,
        }
    }
}
