//! The status of a migration that follows its source, for `cut-over`, the request that ends it, and the answer. Files beside the
//! state.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::MigrateError;
use crate::state::{FileDurability, replace};

const STATUS_FILE: &str = "status.json";
const FINISH_FILE: &str = "finish.json";
const ANSWER_FILE: &str = "answer.json";

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

/// The changes that came, as `cut-over` saw them before it compared both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FinishRequest {
    pub changes: u64,
    pub losses: u64,
}

/// The counts once all feeds have ended and every change is in the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FinishAnswer {
    pub changes: u64,
    pub losses: u64,
    /// Whether all rows were there, all feeds open, and no change is left.
    pub level: bool,
}

impl FinishAnswer {
    /// Whether nothing came since the request: the migration ends. Otherwise it follows on.
    pub fn agrees(&self, request: &FinishRequest) -> bool {
        self.level && (self.changes, self.losses) == (request.changes, request.losses)
    }
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
pub fn request_finish(directory: &Path, request: &FinishRequest) -> Result<(), MigrateError> {
    remove(&directory.join(ANSWER_FILE))?;
    let text = serde_json::to_vec(request).unwrap_or_default();
    replace(&directory.join(FINISH_FILE), &text, FileDurability::Synced)
}

/// The request, if the end was requested.
pub fn finish_request(directory: &Path) -> Option<FinishRequest> {
    serde_json::from_slice(&fs::read(directory.join(FINISH_FILE)).ok()?).ok()
}

/// Takes the request back. Fails with the system's error.
pub fn withdraw_finish(directory: &Path) -> Result<(), MigrateError> {
    remove(&directory.join(FINISH_FILE))
}

/// Answers the request, which is over then. Fails with the system's error.
pub fn answer_finish(directory: &Path, answer: &FinishAnswer) -> Result<(), MigrateError> {
    let text = serde_json::to_vec(answer).unwrap_or_default();
    remove(&directory.join(FINISH_FILE))?;
    replace(&directory.join(ANSWER_FILE), &text, FileDurability::Synced)
}

/// The answer to the last request, if it came.
pub fn finish_answer(directory: &Path) -> Option<FinishAnswer> {
    serde_json::from_slice(&fs::read(directory.join(ANSWER_FILE)).ok()?).ok()
}

/// Forgets the status of a run that ends, and a request. Fails with the system's error.
pub fn clear(directory: &Path) -> Result<(), MigrateError> {
    remove(&directory.join(STATUS_FILE))?;
    remove(&directory.join(FINISH_FILE))
}

fn remove(path: &Path) -> Result<(), MigrateError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(MigrateError::File { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
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
        let request = FinishRequest { changes: 4, losses: 1 };
        request_finish(folder.path(), &request).unwrap();
        assert_eq!(read(folder.path()), Some(status));
        assert_eq!(finish_request(folder.path()), Some(request));
        clear(folder.path()).unwrap();
        assert!(read(folder.path()).is_none() && finish_request(folder.path()).is_none());
        clear(folder.path()).unwrap();
    }

    #[test]
    fn an_answer_replaces_the_request_and_is_gone_with_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let request = FinishRequest::default();
        request_finish(folder.path(), &request).unwrap();
        assert_eq!(finish_answer(folder.path()), None);
        let answer = FinishAnswer { changes: 5, losses: 0, level: true };
        answer_finish(folder.path(), &answer).unwrap();
        assert_eq!((finish_answer(folder.path()), finish_request(folder.path())), (Some(answer), None));
        request_finish(folder.path(), &request).unwrap();
        assert_eq!(finish_answer(folder.path()), None);
    }

    #[test]
    fn a_migration_ends_only_if_nothing_came_since_the_request() {
        let request = FinishRequest { changes: 5, losses: 1 };
        let answer = FinishAnswer { changes: 5, losses: 1, level: true };
        assert!(answer.agrees(&request));
        for other in [
            FinishAnswer { changes: 6, ..answer },
            FinishAnswer { losses: 2, ..answer },
            FinishAnswer { level: false, ..answer },
        ] {
            assert!(!other.agrees(&request), "{other:?}");
        }
    }
}
