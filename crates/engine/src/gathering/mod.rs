//! An engine that gathers small batches before it hands them to another: of a key that is written again
//! and again only the last value gets there, and the keys come in their order.
//!
//! What is gathered is found by [`Engine::get`], and has been handed over before anybody gets a snapshot or
//! hears that it is durable. After the engine below has failed, a snapshot is to be had once it takes what was
//! gathered before. Why: `docs/decisions/0031-write-buffer-before-the-engine.md`.

mod held;

use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use io::task::{self, Condvar, Thread};
use parking_lot::{Mutex, MutexGuard};

use self::held::{Gathered, Held, hash_of};
use crate::{Batch, BeforeFlush, Engine, EngineError, EngineStats, Snapshot, Space};

/// A batch of more than this part of what may be gathered goes straight through: it is no small one.
const LARGE_BATCH_DIVISOR: usize = 16;

/// So many bytes are handed over while somebody who cannot wait asks for a snapshot.
const HANDED_OVER_AT_ONCE_BYTES: usize = 16 << 10;

/// Gathers batches for the engine below. Dropping it hands over what it has.
pub struct GatheringEngine {
    shared: Arc<Shared>,
    carrier: Option<Thread>,
}

struct Shared {
    below: Arc<dyn Engine>,
    bytes_max: usize,
    hash: RandomState,
    held: Mutex<Held>,
    // What was leaving has arrived, or something leaves, or a batch is through, or the carrier is to stop.
    changed: Condvar,
}

impl GatheringEngine {
    /// Gathers up to about `bytes_max` bytes for `below`. Whoever brings more hands them over, before it goes on.
    #[must_use]
    pub fn new(below: Arc<dyn Engine>, bytes_max: usize) -> GatheringEngine {
        let shared = Shared {
            below,
            bytes_max,
            hash: RandomState::default(),
            held: Mutex::default(),
            changed: Condvar::new(),
        };
        GatheringEngine { shared: Arc::new(shared), carrier: None }
    }

    /// As [`GatheringEngine::new`], with a thread that hands over: meanwhile as much again is gathered. Fails when
    /// the system has no thread to give.
    pub fn with_carrier(below: Arc<dyn Engine>, bytes_max: usize) -> std::io::Result<GatheringEngine> {
        let mut engine = GatheringEngine::new(below, bytes_max);
        let shared = Arc::clone(&engine.shared);
        engine.carrier = Some(task::spawn("engine-gather", move || shared.carry_until_stopped())?);
        Ok(engine)
    }
}

impl Shared {
    /// What is known here of `key`: nothing, that it was deleted, or its value.
    fn find(&self, space: Space, key: &[u8]) -> Option<Option<Bytes>> {
        self.held.lock().find(hash_of(&self.hash, space, key), space, key)
    }

    /// Returns when the engine below has everything that was gathered before this call. What it refused before is
    /// tried again: the disk may have room by now.
    fn hand_over(&self) -> Result<(), EngineError> {
        let mut held = self.held.lock();
        let target = held.last_number();
        while held.arrived() < target {
            held = self.go_on(held)?;
        }
        Ok(())
    }

    /// One step on the way of what is gathered: it leaves and arrives, or somebody else gets further with it.
    fn go_on<'a>(&'a self, mut held: MutexGuard<'a, Held>) -> Result<MutexGuard<'a, Held>, EngineError> {
        let Some(leaving) = held.take_along() else {
            self.changed.wait(&mut held);
            return Ok(held);
        };
        drop(held);
        self.carry(&leaving)?;
        // Thousands of values are freed, and not under the lock.
        drop(leaving);
        Ok(self.held.lock())
    }

    /// Hands over what is leaving. Only for who has taken that upon itself.
    fn carry(&self, leaving: &Gathered) -> Result<(), EngineError> {
        let _should_it_panic = FailOnPanic(self);
        let written = self.below.write(leaving.in_key_order());
        let arrived = self.held.lock().end_leaving(written);
        self.changed.notify_all();
        arrived
    }

    /// Writes a batch that is not gathered, after those that were. Other writers wait, readers do not: all that
    /// went before is below by then.
    fn write_through(&self, batch: Batch) -> Result<(), EngineError> {
        // While others may still write: the longer part.
        self.held.lock().check()?;
        self.hand_over()?;
        let mut held = self.held.lock();
        while !held.begin_through()? {
            held = self.go_on(held)?;
        }
        drop(held);
        let _ends = Through(self);
        self.hand_over()?;
        self.held.lock().check()?;
        let written = self.below.write(batch);
        self.held.lock().remember(&written);
        written
    }

    fn carry_until_stopped(&self) {
        let mut held = self.held.lock();
        loop {
            if let Some(leaving) = held.take_errand() {
                drop(held);
                // If it fails, whoever writes next is told.
                drop(self.carry(&leaving));
                // Thousands of values are freed, and not under the lock.
                drop(leaving);
                held = self.held.lock();
            } else if held.is_stopped() {
                drop(held);
                // If it fails, the log replays it.
                return drop(self.hand_over());
            } else {
                self.changed.wait(&mut held);
            }
        }
    }
}

fn panicked() -> EngineError {
    EngineError::Io { detail: "a write to the engine panicked".to_owned() }
}

/// Nobody may wait for what will never arrive.
struct FailOnPanic<'a>(&'a Shared);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The panic is what is reported.
            drop(self.0.held.lock().end_leaving(Err(panicked())));
            self.0.changed.notify_all();
        }
    }
}

/// While it lives, other writers wait for a batch that goes through.
struct Through<'a>(&'a Shared);

impl Drop for Through<'_> {
    fn drop(&mut self) {
        let mut held = self.0.held.lock();
        if std::thread::panicking() {
            held.remember(&Err(panicked()));
        }
        held.end_through();
        drop(held);
        self.0.changed.notify_all();
    }
}

impl Engine for GatheringEngine {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        match self.shared.find(space, key) {
            // A value may be a slice of something much larger.
            Some(known) => Ok(known.map(|value| Bytes::copy_from_slice(&value))),
            None => self.shared.below.get(space, key),
        }
    }

    fn get_many(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, EngineError> {
        // Looked for first: what arrives in between is below by then.
        let known: Vec<_> = keys.iter().map(|key| self.shared.find(space, key)).collect();
        let mut values = self.shared.below.get_many(space, keys)?;
        for (value, known) in values.iter_mut().zip(known) {
            if let Some(known) = known {
                *value = known.map(|known| Bytes::copy_from_slice(&known));
            }
        }
        Ok(values)
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError> {
        self.shared.hand_over()?;
        self.shared.below.snapshot()
    }

    fn snapshot_at_once(&self) -> Result<Option<Arc<dyn Snapshot>>, EngineError> {
        let held = self.shared.held.lock();
        if held.is_leaving() || held.bytes() > HANDED_OVER_AT_ONCE_BYTES {
            return Ok(None);
        }
        drop(held);
        self.snapshot().map(Some)
    }

    fn write(&self, batch: Batch) -> Result<(), EngineError> {
        let shared = &*self.shared;
        if batch.deletes_ranges() || batch.bytes() > shared.bytes_max / LARGE_BATCH_DIVISOR {
            return shared.write_through(batch);
        }
        let mut held = shared.held.lock();
        while !held.has_room(shared.bytes_max)? {
            held = shared.go_on(held)?;
        }
        held.add(&batch, &shared.hash);
        if held.bytes() <= shared.bytes_max || held.is_leaving() {
            return Ok(());
        }
        if self.carrier.is_none() {
            drop(held);
            return shared.hand_over();
        }
        held.send_off();
        shared.changed.notify_all();
        Ok(())
    }

    fn flush(&self) -> Result<(), EngineError> {
        self.shared.hand_over()?;
        self.shared.held.lock().check()?;
        self.shared.below.flush()
    }

    fn before_flush(&self, hook: BeforeFlush) {
        // What is gathered here is not durable before it was written below.
        self.shared.below.before_flush(hook);
    }

    fn set_cache_bytes(&self, bytes: usize) {
        self.shared.below.set_cache_bytes(bytes);
    }

    fn stats(&self) -> EngineStats {
        let mut stats = self.shared.below.stats();
        stats.memory.memtables += self.shared.held.lock().all_bytes() as u64;
        stats
    }
}

impl Drop for GatheringEngine {
    fn drop(&mut self) {
        let Some(carrier) = self.carrier.take() else {
            // If it fails, the log replays it.
            return drop(self.shared.hand_over());
        };
        self.shared.held.lock().stop();
        self.shared.changed.notify_all();
        carrier.join();
    }
}
