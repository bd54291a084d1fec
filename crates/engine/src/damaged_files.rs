//! The damaged files of an engine that is in use.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The most files that are listed.
#[cfg(feature = "rocks")]
const FILES_MAX: usize = 100;

/// A file in which the engine has met damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// Its name in the engine's directory.
    pub name: String,
    /// The engine's description of the damage that was met first.
    pub detail: String,
    /// Its lowest and its highest key, if they are known.
    pub keys: Option<(Vec<u8>, Vec<u8>)>,
}

/// The files in which an engine has met damage since it was opened, by name.
#[derive(Debug, Default)]
pub struct DamagedFiles {
    files: Mutex<BTreeMap<String, DamagedFile>>,
    reads_failed: AtomicU64,
}

impl DamagedFiles {
    /// The files, by name, at most a hundred.
    #[must_use]
    pub fn list(&self) -> Vec<DamagedFile> {
        self.files.lock().values().cloned().collect()
    }

    /// How many reads have failed because of damage.
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

    #[cfg(feature = "rocks")]
    pub(crate) fn set_keys(&self, name: &str, keys: (Vec<u8>, Vec<u8>)) {
        if let Some(file) = self.files.lock().get_mut(name) {
            file.keys = Some(keys);
        }
    }

    /// Keeps the files for which `is_present` holds.
    #[cfg(feature = "rocks")]
    pub(crate) fn retain(&self, is_present: impl Fn(&str) -> bool) {
        self.files.lock().retain(|name, _| is_present(name));
    }
}
