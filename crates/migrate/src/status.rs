//! The status of a migration that follows its source, for `cut-over`, and the request that ends it. Files beside the state.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::MigrateError;
use crate::state::{FileDurability, replace};

const STATUS_FILE: &str = "status.json";
const FINISH_FILE: &str = "finish";

/// The present state of the feeds, all tables together.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Grows with each report: a status that stays the same is one of a process that has ended.
    pub beat: u64,
    /// Process id of the migration.
    pub process: u32,
    /// Whether all rows are copied and all feeds are open.
    pub following: bool,
    /// Changes that came and are not in the target yet.
    pub lag: u64,
    /// Changes that came.
    pub changes: u64,
    /// How often a feed ended or skipped changes.
    pub losses: u64,
    /// Since the last change came.
    pub quiet_ms: u64,
    /// The table in which it came.
    pub last_table: String,
}

/// Replaces the status. Fails with the system's error.
pub fn write(directory: &Path, status: &Status) -> Result<(), MigrateError> {
    let text = serde_json::to_vec(status).unwrap_or_default();
    replace(&directory.join(STATUS_FILE), &text, FileDurability::Unsynced)
}

/// The last status; `None` without one.
pub fn read(directory: &Path) -> Option<Status> {
    serde_json::from_slice(&fs::read(directory.join(STATUS_FILE)).ok()?).ok()
}

/// Asks the migration to end. Fails with the system's error.
pub fn request_finish(directory: &Path) -> Result<(), MigrateError> {
    replace(&directory.join(FINISH_FILE), b"", FileDurability::Synced)
}

/// Whether the end was requested.
pub fn is_finish_requested(directory: &Path) -> bool {
    directory.join(FINISH_FILE).exists()
}

/// Forgets a request and a status of an earlier run. Fails with the system's error.
pub fn clear(directory: &Path) -> Result<(), MigrateError> {
    for name in [STATUS_FILE, FINISH_FILE] {
        let path = directory.join(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(MigrateError::File { path, source });
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_and_a_request_are_seen_until_they_are_cleared() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), None);
        let status = Status { beat: 3, lag: 7, ..Status::default() };
        write(folder.path(), &status).unwrap();
        request_finish(folder.path()).unwrap();
        assert_eq!(read(folder.path()), Some(status));
        assert!(is_finish_requested(folder.path()));
        clear(folder.path()).unwrap();
        assert!(read(folder.path()).is_none() && !is_finish_requested(folder.path()));
        clear(folder.path()).unwrap();
    }
}
