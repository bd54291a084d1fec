//! How far the writers have come with each document, for the checks of feeds and tables.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::RwLock;

use super::check::Versions;
use super::model::{Document, Model};

/// The most documents that a writer uses.
const NUMBERS_MAX: u32 = 50_000;

/// The writes of all documents, by their places.
pub(super) struct Writes {
    pub(super) model: Model,
    pub(super) writers: u32,
    acknowledged: Vec<AtomicU32>,
    attempted: Vec<AtomicU32>,
    /// The documents that some writer has used are below this place.
    used: AtomicU32,
    changes: AtomicU64,
    /// Held shared by each write, and exclusively at a quiescent point.
    pub(super) gate: RwLock<()>,
}

impl Writes {
    pub(super) fn new(model: Model, writers: u32) -> Writes {
        let zeros = || (0..writers * NUMBERS_MAX).map(|_| AtomicU32::new(0)).collect();
        Writes {
            model,
            writers,
            acknowledged: zeros(),
            attempted: zeros(),
            used: AtomicU32::new(0),
            changes: AtomicU64::new(0),
            gate: RwLock::new(()),
        }
    }

    /// The write of this version begins.
    pub(super) fn begin(&self, document: Document, version: u32) {
        let place = document.place(self.writers);
        self.used.fetch_max(place as u32 + 1, Ordering::SeqCst);
        self.attempted[place].store(version, Ordering::SeqCst);
    }

    pub(super) fn acknowledge(&self, document: Document, version: u32) {
        self.acknowledged[document.place(self.writers)].store(version, Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// The last write that has begun.
    pub(super) fn newest(&self, document: Document) -> u32 {
        self.attempted.get(document.place(self.writers)).map_or(0, |newest| newest.load(Ordering::SeqCst))
    }

    /// The last acknowledged write.
    pub(super) fn acknowledged(&self, document: Document) -> u32 {
        self.acknowledged[document.place(self.writers)].load(Ordering::SeqCst)
    }

    /// The acknowledged writes of all documents now.
    pub(super) fn all_acknowledged(&self) -> Versions {
        self.all(&self.acknowledged)
    }

    /// The writes of all documents that have begun.
    pub(super) fn all_newest(&self) -> Versions {
        self.all(&self.attempted)
    }

    /// How many documents each writer has used, about.
    pub(super) fn numbers(&self) -> u32 {
        self.used.load(Ordering::SeqCst) / self.writers + 1
    }

    /// The number of acknowledged changes.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn all(&self, versions: &[AtomicU32]) -> Versions {
        let used = self.used.load(Ordering::SeqCst) as usize;
        versions[..used].iter().map(|version| version.load(Ordering::SeqCst)).collect()
    }
}
