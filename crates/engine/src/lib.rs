//! Sorted bytes: keys to values with atomic batches, snapshots and ordered scans.
//!
//! Line 1 of the river. A request arrives here from `storage` and goes no further down than the
//! disk. The engine keeps no log of its own: what was written since the last [`Engine::flush`] is
//! lost with the process, and the shard's log replays it (`docs/decisions/0003-rocksdb-engine.md`). Nor does
//! anything become durable that the log could not replay (`docs/decisions/0040-log-durable-before-rows.md`).
//!
//! - [`Engine`], [`Snapshot`], [`Scan`]: the contract
//! - [`Batch`], [`Space`]: what is written, and where
//! - [`memory::MemoryEngine`]: for tests and simulation
//! - [`rocks::RocksEngine`]: on disk (feature `rocks`, which needs a C++ compiler)
//! - [`BufferedEngine`]: gathers small batches for either
//! - [`prefetch`]: a hint to the processor, for all who look things up in memory
//! - [`conformance`]: the suite that all three pass
#![deny(unsafe_code)]

mod batch;
pub mod conformance;
mod contract;
mod error;
pub mod memory;
mod pre_flush;
mod prefetch;
#[cfg(feature = "rocks")]
pub mod rocks;
mod scan_range;
mod stats;
mod write_buffer;

pub use batch::{Batch, Change, Space};
pub use contract::{Engine, Scan, Snapshot};
pub use error::EngineError;
pub use pre_flush::PreFlushHook;
pub use prefetch::prefetch;
pub use scan_range::{Direction, Pair, ScanRange};
pub use stats::{EngineStats, LevelStats, MemoryStats};
pub use write_buffer::BufferedEngine;
