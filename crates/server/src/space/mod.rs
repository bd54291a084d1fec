//! Watches the free space of the disk that has the data directory.
//!
//! A thread looks several times a second. When the disk is almost full, writes of rows are refused and deletions are not. A
//! reserve, a file of zeros in the data directory, is given up when others take the last space, so that the engine and the
//! log can still write what cannot be refused. Why: `docs/decisions/0067-full-disks.md`.

mod levels;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use engine::rocks::RocksEngine;
use io::task::{self, Condvar, Thread};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use shard::Replicas;

use self::levels::{Levels, Reserve};

/// The name of the reserve in the data directory.
const RESERVE: &str = "reserve";
/// The time between two looks.
const INTERVAL: Duration = Duration::from_millis(250);
/// A write of the engine that found the disk full is tried again after this time.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The reserve has at most this fraction of the disk.
const DISK_DIVISOR: u64 = 4;
/// The space for the log and the lists of the engine's files.
const RESERVE_LEAST: u64 = 32 << 20;

/// The space of one data directory.
pub(crate) struct Space {
    dir: PathBuf,
    reserve_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    levels: Levels,
    /// Whether the last look found that rows should be refused.
    is_short: bool,
    /// Set when the server stops: nothing waits for space any longer.
    is_closed: bool,
}

/// The thread that looks. Dropping it ends the thread.
pub(crate) struct SpaceWatch {
    space: Arc<Space>,
    rocks: Arc<RocksEngine>,
    stop: Option<SyncSender<()>>,
    thread: Option<Thread>,
}

impl Space {
    /// The space of the data directory `dir`, whose engine has at most `memtable_bytes` to flush. Gives up the reserve of
    /// an earlier run if the disk is full: the server needs some space to start. Fails if the disk cannot be asked.
    pub(crate) fn new(dir: &Path, memtable_bytes: u64) -> std::io::Result<Arc<Space>> {
        let disk = statvfs(dir)?;
        let part = disk.f_blocks * disk.f_frsize / DISK_DIVISOR;
        let reserve_bytes = (2 * memtable_bytes + RESERVE_LEAST).min(part).max(1);
        let state = State { levels: Levels::new(reserve_bytes), is_short: false, is_closed: false };
        let space =
            Space { dir: dir.to_owned(), reserve_bytes, state: Mutex::new(state), changed: Condvar::new() };
        space.look(false);
        Ok(Arc::new(space))
    }

    /// Waits a moment after a write for which the disk had no space. Returns whether it should be tried again: until the
    /// server stops.
    pub(crate) fn await_space(&self) -> bool {
        self.look(true);
        let mut state = self.state.lock();
        if !state.is_closed {
            self.changed.wait_for(&mut state, RETRY_INTERVAL);
        }
        !state.is_closed
    }

    /// Nothing waits for space any longer.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Whether the last look found too little space for the engine.
    fn is_short(&self) -> bool {
        self.state.lock().is_short
    }

    /// Looks at the disk, and makes or gives up the reserve. `was_short`: the engine has found no space since the last look.
    /// Returns whether rows should be refused.
    fn look(&self, was_short: bool) -> bool {
        let mut state = self.state.lock();
        let path = self.dir.join(RESERVE);
        // A disk that cannot be asked is not taken for full.
        let Ok(disk) = statvfs(&self.dir) else { return false };
        let decision = state.levels.step(disk.f_bavail * disk.f_frsize, path.exists(), was_short);
        state.is_short = decision.refuses_rows;
        match decision.reserve {
            Reserve::Keep => {}
            Reserve::GiveUp => {
                tracing::warn!(
                    "the disk is full: the reserve of {} MB is given up",
                    self.reserve_bytes >> 20
                );
                drop(fs::remove_file(&path));
            }
            Reserve::Make => self.make_reserve(&path),
        }
        decision.refuses_rows
    }

    fn make_reserve(&self, path: &Path) {
        let made = File::create(path)
            .and_then(|file| Ok(fallocate(file, FallocateFlags::empty(), 0, self.reserve_bytes)?));
        if let Err(cause) = made {
            // Without a reserve rows are refused earlier: see the levels.
            tracing::warn!("{} cannot be made: {cause}", path.display());
            drop(fs::remove_file(path));
        }
    }

    /// Starts the thread that looks, for the rows of `replicas` in `rocks`. Fails if the system cannot start one.
    pub(crate) fn watch(
        self: &Arc<Space>,
        replicas: &Arc<Replicas>,
        rocks: &Arc<RocksEngine>,
    ) -> std::io::Result<SpaceWatch> {
        let (stop, stopped) = sync_channel(0);
        let (space, replicas, engine) = (Arc::clone(self), Arc::clone(replicas), Arc::clone(rocks));
        let run = move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let refuses = space.look(engine.has_lacked_space());
                let store = replicas.store();
                if refuses != store.refuses_rows() {
                    store.set_refuses_rows(refuses);
                    match refuses {
                        true => {
                            tracing::warn!("the disk is almost full: rows can be deleted, but not written")
                        }
                        false => tracing::info!("the disk has space again: rows can be written"),
                    }
                }
            }
        };
        let thread = task::spawn("space", run)?;
        Ok(SpaceWatch {
            space: Arc::clone(self),
            rocks: Arc::clone(rocks),
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for SpaceWatch {
    fn drop(&mut self) {
        self.space.close();
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
        if self.space.is_short() {
            self.rocks.give_up();
        }
    }
}
