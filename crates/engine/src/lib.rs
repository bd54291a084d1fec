//! A sorted key-value store: atomic batches, snapshots and ordered scans.
//!
//! Layer 1 of a request's path, below `storage`; nothing is below it but the disk. The engine has no log: batches
//! written since the last [`Engine::flush`] are lost with the process, and the shard's log replays them
//! (`docs/decisions/0003-rocksdb-engine.md`). Nothing becomes durable here that the log could not replay
//! (`docs/decisions/0040-log-durable-before-rows.md`).
//!
//! - [`Engine`], [`Snapshot`], [`Scan`]: the contract
//! - [`Batch`], [`Space`]: a set of changes, and the key space of each
//! - [`memory::MemoryEngine`]: for tests and simulation
//! - [`rocks::RocksEngine`]: on disk (feature `rocks`, which needs a C++ compiler)
//! - [`BufferedEngine`]: a write buffer in front of either
//! - [`DamagedFiles`]: the files in which an engine on disk has met damage
//! - [`RowRewriter`]: gives rows another form when the engine moves them
//! - [`prefetch()`]: a hint to the processor to load memory into its cache
//! - [`conformance`]: the suite that all three pass
#![deny(unsafe_code)]

mod batch;
pub mod conformance;
mod contract;
mod damaged_files;
mod error;
#[cfg(feature = "rocks")]
mod full_disk;
pub mod memory;
mod pre_flush;
mod prefetch;
#[cfg(feature = "rocks")]
pub mod rocks;
mod row_rewriter;
mod scan_range;
mod stats;
mod write_buffer;

pub use batch::{Batch, Change, Space};
pub use contract::{DeletedKeys, Engine, Scan, Snapshot};
pub use damaged_files::{DamagedFile, DamagedFiles};
pub use error::EngineError;
#[cfg(feature = "rocks")]
pub use full_disk::FullDiskHook;
pub use pre_flush::PreFlushHook;
pub use prefetch::prefetch;
pub use row_rewriter::{Occasion, RowRewriter};
pub use scan_range::{Direction, Pair, ScanRange};
pub use stats::{CompressionStats, EngineStats, LevelStats, MemoryStats, WrittenStats};
pub use write_buffer::BufferedEngine;
