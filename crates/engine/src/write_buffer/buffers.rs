//! What is gathered, and what is on its way to the engine below. Pure bookkeeping, without a thread.

use std::hash::BuildHasher;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::{Batch, Change, EngineError, Space};

/// Batches as one, in which no key occurs twice and no range is deleted.
#[derive(Default)]
pub(super) struct BufferedChanges {
    batch: Batch,
    // Where a key's change is in it, by the key's hash.
    slots: HashTable<u32>,
}

/// What a change takes besides its key and value: its step in a vector that doubles, its place in a table that
/// does, and the value's own allocation.
const CHANGE_BYTES: usize = 80;

/// What the engine below does not have, or may not have yet.
#[derive(Default)]
pub(super) struct Buffers {
    filling: BufferedChanges,
    // The engine below shows it at one instant; until then it is read here.
    flushing: Option<Arc<BufferedChanges>>,
    // Whether somebody hands it over at this moment.
    has_flusher: bool,
    // Whether somebody writes a batch that is not gathered, or is about to: nothing is gathered meanwhile.
    is_writing_through: bool,
    // How many have been sent off, and have arrived.
    sealed: u64,
    flushed: u64,
    // The engine below has failed: what was leaving is still read here and may arrive yet, and nothing new is
    // written any more.
    failed: Option<EngineError>,
    stopped: bool,
}

/// The hash of a key.
pub(super) fn hash_of(hash: &RandomState, space: Space, key: &[u8]) -> u64 {
    // A key is hashed with its length; the spaces come apart by the comparison.
    hash.hash_one(key) ^ space as u64
}

impl Buffers {
    /// Fails if the engine below has.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Remembers a failure.
    pub(super) fn record_failure(&mut self, written: &Result<(), EngineError>) {
        if let Err(error) = written {
            self.failed = Some(error.clone());
        }
    }

    /// Whether a batch may be gathered now. Fails if the engine below has.
    pub(super) fn has_room(&self, bytes_max: usize) -> Result<bool, EngineError> {
        self.check()?;
        Ok(!self.is_writing_through && (self.bytes() <= bytes_max || !self.is_flushing()))
    }

    /// Whether the caller may now write a batch through, once what is gathered has arrived. Fails if the engine
    /// below has.
    pub(super) fn begin_write_through(&mut self) -> Result<bool, EngineError> {
        self.check()?;
        Ok(!std::mem::replace(&mut self.is_writing_through, true))
    }

    /// The batch is through, or never will be.
    pub(super) fn end_write_through(&mut self) {
        self.is_writing_through = false;
    }

    /// What is known of a key of this hash.
    pub(super) fn find(&self, hash: u64, space: Space, key: &[u8]) -> Option<Option<Bytes>> {
        let found = self.filling.find(hash, space, key);
        found.or_else(|| self.flushing.as_ref()?.find(hash, space, key))
    }

    /// Gathers a batch that deletes no range.
    pub(super) fn add(&mut self, batch: &Batch, hash: &RandomState) {
        self.filling.add(batch, hash);
    }

    /// Bytes gathered that are not leaving.
    pub(super) fn bytes(&self) -> usize {
        self.filling.bytes()
    }

    /// Bytes that the engine below does not have.
    pub(super) fn total_bytes(&self) -> usize {
        self.bytes() + self.flushing.as_ref().map_or(0, |flushing| flushing.bytes())
    }

    /// Whether nothing is gathered but what is leaving.
    pub(super) fn is_empty(&self) -> bool {
        self.filling.batch.is_empty()
    }

    /// The number under which the last of what is here has left, or will.
    pub(super) fn last_generation(&self) -> u64 {
        self.sealed + u64::from(!self.is_empty())
    }

    /// The number of the last that has arrived.
    pub(super) fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Whether something is on its way: nothing else leaves until it has arrived.
    pub(super) fn is_flushing(&self) -> bool {
        self.flushing.is_some()
    }

    /// What is gathered leaves: who comes first takes it along. Nothing else may be on its way.
    pub(super) fn seal_filling(&mut self) {
        debug_assert!(self.flushing.is_none(), "one leaves after the other");
        self.flushing = Some(Arc::new(std::mem::take(&mut self.filling)));
        self.sealed += 1;
    }

    /// What the caller is to carry now: what is leaving, or what is gathered. `None` when somebody carries already,
    /// or there is nothing.
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

    /// What is leaving, if nobody carries it and the engine below has not failed.
    pub(super) fn take_pending_flush(&mut self) -> Option<Arc<BufferedChanges>> {
        if self.failed.is_none() && self.is_flushing() { self.start_flush() } else { None }
    }

    /// What was leaving has arrived, or has not: it is left for who tries again.
    pub(super) fn end_flush(&mut self, written: Result<(), EngineError>) -> Result<(), EngineError> {
        self.has_flusher = false;
        if written.is_ok() {
            self.flushing = None;
            self.flushed = self.sealed;
        }
        self.record_failure(&written);
        written
    }

    /// Nobody will write any more.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether nobody will.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }
}

impl BufferedChanges {
    /// About how much memory it takes.
    fn bytes(&self) -> usize {
        self.batch.bytes() + CHANGE_BYTES * self.batch.len()
    }

    /// All of it as the engine below likes it best.
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
                    unreachable!("invariant: a batch that deletes a range is written through")
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
