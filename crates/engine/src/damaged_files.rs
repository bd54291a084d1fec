//! The damage that an engine in use has met: in its files, and in single rows of undamaged files.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::Space;

/// The most files that are listed.
#[cfg(feature = "rocks")]
const FILES_MAX: usize = 100;
/// The most rows that are listed.
const ROWS_MAX: usize = 100;

/// A file in which the engine has met damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// Its name in the engine's directory.
    pub name: String,
    /// The engine's description of the damage that was met first.
    pub detail: String,
    /// The space whose pairs it has, if that is known.
    pub space: Option<Space>,
    /// Its lowest and its highest key, if they are known. For a file of large values: those of the reads that failed.
    pub keys: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether nothing in it is needed any more. It is removed when the engine is opened again.
    pub is_discarded: bool,
}

/// The files in which an engine has met damage since it was opened, by name, and damaged rows of other files, by key.
#[derive(Debug, Default)]
pub struct DamagedFiles {
    files: Mutex<BTreeMap<String, DamagedFile>>,
    rows: Mutex<BTreeMap<Vec<u8>, String>>,
    reads_failed: AtomicU64,
}

impl DamagedFiles {
    /// The files, by name, at most a hundred.
    #[must_use]
    pub fn list(&self) -> Vec<DamagedFile> {
        self.files.lock().values().cloned().collect()
    }

    /// The damaged rows outside of these files, at most a hundred: the engine's key, and a description that names the row.
    #[must_use]
    pub fn rows(&self) -> Vec<(Vec<u8>, String)> {
        self.rows.lock().iter().map(|(key, detail)| (key.clone(), detail.clone())).collect()
    }

    /// Whether neither a file nor a row is listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.lock().is_empty() && self.rows.lock().is_empty()
    }

    /// Lists the row under the engine's key `key`, which was read without an error and is damaged itself.
    pub fn note_row(&self, key: &[u8], detail: &str) {
        let mut rows = self.rows.lock();
        if rows.len() < ROWS_MAX && !rows.contains_key(key) {
            rows.insert(key.to_vec(), detail.to_owned());
        }
    }

    /// Removes a row from the list: it was replaced or deleted.
    pub fn forget_row(&self, key: &[u8]) {
        self.rows.lock().remove(key);
    }

    /// How many reads have failed because of damage in a file.
    #[must_use]
    pub fn reads_failed(&self) -> u64 {
        self.reads_failed.load(Ordering::Relaxed)
    }

    /// Counts a failed read of the file `name`. True if the file is not listed yet and can be.
    #[cfg(feature = "rocks")]
    pub(crate) fn count(&self, name: &str) -> bool {
        self.reads_failed.fetch_add(1, Ordering::Relaxed);
        let files = self.files.lock();
        !files.contains_key(name) && files.len() < FILES_MAX
    }

    #[cfg(feature = "rocks")]
    pub(crate) fn add(&self, file: DamagedFile) {
        self.files.lock().entry(file.name.clone()).or_insert(file);
    }

    /// Changes the entry of a listed file.
    #[cfg(feature = "rocks")]
    pub(crate) fn update(&self, name: &str, change: impl FnOnce(&mut DamagedFile)) {
        if let Some(file) = self.files.lock().get_mut(name) {
            change(file);
        }
    }

    /// Keeps the files for which `is_present` holds.
    #[cfg(feature = "rocks")]
    pub(crate) fn retain(&self, is_present: impl Fn(&str) -> bool) {
        self.files.lock().retain(|name, _| is_present(name));
    }
}
