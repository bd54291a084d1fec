//! The engine on disk: RocksDB without its own log, one instance per data directory.
//!
//! Why RocksDB and why so configured: `docs/decisions/0003-rocksdb-engine.md`.

mod options;

pub use options::EngineOptions;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rocksdb::DB;

use crate::{Batch, Engine, EngineError, EngineStats, Snapshot, Space};

/// An open RocksDB directory.
pub struct RocksEngine {
    db: Arc<DB>,
}

impl RocksEngine {
    /// Opens the engine in `dir`, creating it if there is none.
    ///
    /// Fails with [`EngineError::Locked`] if another process has it open.
    pub fn open(dir: &Path, options: &EngineOptions) -> Result<RocksEngine, EngineError> {
        let _ = (dir, options);
        Err(EngineError::Io { detail: "not written yet".into() })
    }
}

impl Engine for RocksEngine {
    fn get(&self, _space: Space, _key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        todo!()
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError> {
        let _ = &self.db;
        todo!()
    }

    fn write(&self, _batch: Batch) -> Result<(), EngineError> {
        todo!()
    }

    fn flush(&self) -> Result<(), EngineError> {
        todo!()
    }

    fn stats(&self) -> EngineStats {
        todo!()
    }
}
