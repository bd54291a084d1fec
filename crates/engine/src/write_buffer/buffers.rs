//! The two buffers: changes that are being collected (`filling`) and changes that are being written to the engine
//! (`flushing`). Only bookkeeping, no threads.

use std::hash::BuildHasher;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::{Batch, Change, EngineError, Space};

/// Several batches merged into one, in which each key occurs once and no range is deleted.
#[derive(Default)]
pub(super) struct BufferedChanges {
    batch: Batch,
    // The index of a key's change in `batch`, by the hash of the key.
    slots: HashTable<u32>,
}

/// Memory that a change takes besides its key and value: its entry in a vector that doubles, its slot in a table that
/// doubles, and the value's own allocation.
const CHANGE_BYTES: usize = 80;

/// The changes that the engine does not have, or may not have yet.
#[derive(Default)]
pub(super) struct Buffers {
    filling: BufferedChanges,
    // The engine shows these changes all at one instant; until then they are read here.
    flushing: Option<Arc<BufferedChanges>>,
    // Whether a thread is writing `flushing` to the engine at this moment.
    has_flusher: bool,
    // Whether a thread writes a batch directly to the engine, or is about to: nothing is buffered meanwhile.
    is_writing_through: bool,
    // How many buffers were sealed (moved to `flushing`), and how many of those the engine has.
    sealed: u64,
    flushed: u64,
    // Set after the engine has failed: `flushing` is still read here and may be written later, and new batches are
    // refused.
    failed: Option<EngineError>,
    stopped: bool,
}

pub(super) fn hash_of(hash: &RandomState, space: Space, key: &[u8]) -> u64 {
    // A key is hashed with its length. The space is mixed in; equal hashes are resolved by comparing space and key.
    hash.hash_one(key) ^ space as u64
}

impl Buffers {
    /// Fails if the engine has failed.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    pub(super) fn record_failure(&mut self, written: &Result<(), EngineError>) {
        if let Err(error) = written {
            self.failed = Some(error.clone());
        }
    }

    /// Whether a batch may be buffered now. Fails if the engine has failed.
    pub(super) fn has_room(&self, bytes_max: usize) -> Result<bool, EngineError> {
        self.check()?;
        Ok(!self.is_writing_through && (self.bytes() <= bytes_max || !self.is_flushing()))
    }

    /// Whether the caller may write a batch directly, once everything buffered is in the engine. Fails if the engine
    /// has failed.
    pub(super) fn begin_write_through(&mut self) -> Result<bool, EngineError> {
        self.check()?;
        Ok(!std::mem::replace(&mut self.is_writing_through, true))
    }

    /// The direct write has ended, with or without success.
    pub(super) fn end_write_through(&mut self) {
        self.is_writing_through = false;
    }

    /// The buffered change of a key with this hash: its value, `Some(None)` if it is deleted, `None` if no change is
    /// buffered.
    pub(super) fn find(&self, hash: u64, space: Space, key: &[u8]) -> Option<Option<Bytes>> {
        let found = self.filling.find(hash, space, key);
        found.or_else(|| self.flushing.as_ref()?.find(hash, space, key))
    }

    /// Buffers a batch that deletes no range.
    pub(super) fn add(&mut self, batch: &Batch, hash: &RandomState) {
        self.filling.add(batch, hash);
    }

    /// Bytes in the buffer that is being filled.
    pub(super) fn bytes(&self) -> usize {
        self.filling.bytes()
    }

    /// Bytes in both buffers, which the engine does not have.
    pub(super) fn total_bytes(&self) -> usize {
        self.bytes() + self.flushing.as_ref().map_or(0, |flushing| flushing.bytes())
    }

    /// Whether the buffer that is being filled is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.filling.batch.is_empty()
    }

    /// The number of the newest buffer with changes, counted from 1: that of `filling`, or of the last one sealed if it
    /// is empty.
    pub(super) fn last_generation(&self) -> u64 {
        self.sealed + u64::from(!self.is_empty())
    }

    /// The number of the last buffer that the engine has.
    pub(super) fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Whether a sealed buffer is being flushed. No other is sealed until the engine has it.
    pub(super) fn is_flushing(&self) -> bool {
        self.flushing.is_some()
    }

    /// Seals the buffer that is being filled: the next thread that calls [`Buffers::start_flush`] writes it. No other
    /// may be flushing.
    pub(super) fn seal_filling(&mut self) {
        debug_assert!(self.flushing.is_none(), "one buffer is flushed at a time");
        self.flushing = Some(Arc::new(std::mem::take(&mut self.filling)));
        self.sealed += 1;
    }

    /// The buffer that the caller must write now: the sealed one, or the one being filled, which is then sealed. `None`
    /// if another thread is writing, or nothing is buffered.
    pub(super) fn start_flush(&mut self) -> Option<Arc<BufferedChanges>> {
        if self.has_flusher {
            return None;
        }
        if !self.is_flushing() && !self.is_empty() {
            self.seal_filling();
        }
        self.has_flusher = self.is_flushing();
        self.flushing.clone()
    }

    /// The sealed buffer, if no thread writes it and the engine has not failed.
    pub(super) fn take_pending_flush(&mut self) -> Option<Arc<BufferedChanges>> {
        if self.failed.is_none() && self.is_flushing() { self.start_flush() } else { None }
    }

    /// Notes the outcome of writing the sealed buffer. After a failure the buffer stays, so that the write can be
    /// retried.
    pub(super) fn end_flush(&mut self, written: Result<(), EngineError>) -> Result<(), EngineError> {
        self.has_flusher = false;
        if written.is_ok() {
            self.flushing = None;
            self.flushed = self.sealed;
        }
        self.record_failure(&written);
        written
    }

    /// Asks the writer thread to stop.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }
}

impl BufferedChanges {
    /// About how much memory the changes take.
    fn bytes(&self) -> usize {
        self.batch.bytes() + CHANGE_BYTES * self.batch.len()
    }

    /// All changes in the order of their keys, which the engine inserts fastest.
    pub(super) fn in_key_order(&self) -> Batch {
        self.batch.in_key_order()
    }

    fn slot(&self, hash: u64, space: Space, key: &[u8]) -> Option<usize> {
        let is_it = |slot: &u32| self.batch.key(*slot as usize) == Some((space, key));
        self.slots.find(hash, is_it).map(|slot| *slot as usize)
    }

    fn find(&self, hash: u64, space: Space, key: &[u8]) -> Option<Option<Bytes>> {
        match self.batch.change(self.slot(hash, space, key)?)? {
            Change::Put { value, .. } => Some(Some(value.clone())),
            Change::Delete { .. } | Change::DeleteRange { .. } => Some(None),
        }
    }

    fn add(&mut self, batch: &Batch, hash: &RandomState) {
        for change in batch.changes() {
            let (space, key, value) = match change {
                Change::Put { space, key, value } => (space, key, Some(value.clone())),
                Change::Delete { space, key } => (space, key, None),
                Change::DeleteRange { .. } => {
                    unreachable!("invariant: a batch that deletes a range is written directly")
                }
            };
            let key_hash = hash_of(hash, space, key);
            if let Some(slot) = self.slot(key_hash, space, key) {
                self.batch.supersede(slot, value);
                continue;
            }
            let slot = u32::try_from(self.batch.len()).expect("invariant: a few million changes at most");
            match value {
                Some(value) => self.batch.put(space, key, value),
                None => self.batch.delete(space, key),
            }
            let batch = &self.batch;
            let hash_at =
                |slot: &u32| batch.key(*slot as usize).map_or(0, |(space, key)| hash_of(hash, space, key));
            self.slots.insert_unique(key_hash, slot, hash_at);
        }
    }
}
