//! Every log keeps the contract.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use io::real::{RealClock, RealFiles};
use io::sim::SimFiles;
use io::{Clock, Files};
use rekindle_log::conformance::{self, Disk};
use rekindle_log::file::{FileLog, FileLogOptions, StoreOptions};
use rekindle_log::memory::{MemoryEntries, MemoryLog};
use rekindle_log::{Applier, Log};

struct Memory(MemoryEntries);

impl Disk for Memory {
    fn start(&self, applier: Arc<dyn Applier>) -> Arc<dyn Log> {
        Arc::new(MemoryLog::open(self.0.clone(), applier))
    }
}

struct Folder {
    files: Arc<dyn Files>,
    dir: PathBuf,
    segment_bytes: u64,
    _temporary: Option<tempfile::TempDir>,
}

impl Disk for Folder {
    fn start(&self, applier: Arc<dyn Applier>) -> Arc<dyn Log> {
        let store = StoreOptions { segment_bytes: self.segment_bytes };
        let options = FileLogOptions { store, ..FileLogOptions::default() };
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let log = FileLog::open(Arc::clone(&self.files), clock, &self.dir, applier, options);
        Arc::new(log.unwrap())
    }
}

#[test]
fn the_memory_log_keeps_the_contract() {
    conformance::run(|| Memory(MemoryEntries::default()));
}

#[test]
fn the_file_log_keeps_the_contract_on_a_real_disk() {
    conformance::run(|| {
        let temporary = tempfile::tempdir().unwrap();
        Folder {
            files: Arc::new(RealFiles),
            dir: temporary.path().join("log"),
            segment_bytes: 64 << 20,
            _temporary: Some(temporary),
        }
    });
}

#[test]
fn the_file_log_keeps_the_contract_across_many_small_segments() {
    conformance::run(|| Folder {
        files: Arc::new(SimFiles::new(1)),
        dir: Path::new("/log").to_owned(),
        segment_bytes: 1000,
        _temporary: None,
    });
}
