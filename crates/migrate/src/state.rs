//! How far a migration has come, in a file: an interrupted run goes on from there. Decision 0051.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::coverage::StoredSegment;
use crate::error::{InputError, MigrateError};

/// Version of the file's form.
const VERSION: u32 = 1;
const STATE_FILE: &str = "state.json";
const LOCK_FILE: &str = "lock";

/// One table's part.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TableState {
    /// UUIDs of both tables; the target's is empty until it is made.
    pub source_id: String,
    pub target_id: String,
    /// Rows that only the target has stay.
    pub keeps_extra: bool,
    pub segments: Vec<StoredSegment>,
    pub rows: u64,
    pub bytes: u64,
    pub refused: u64,
}

/// All of a migration.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct State {
    pub version: u32,
    /// `host:port` of both sides, as given.
    pub source: String,
    pub target: String,
    /// By `db.table`.
    pub tables: BTreeMap<String, TableState>,
    /// `--only` of the last run; everything is moved without it.
    #[serde(default)]
    pub only: Vec<String>,
    /// What the source had when the last run began, by `catalog::parts`.
    #[serde(default)]
    pub parts: BTreeMap<String, String>,
    /// `cut-over` has said that the application may use the target: the target is ahead of the source since.
    #[serde(default)]
    pub switched: bool,
}

impl State {
    /// Fails if the application uses the target already: a further run would undo its writes. `directory` is named in the error.
    pub fn check_open(&self, directory: &Path) -> Result<(), InputError> {
        match self.switched {
            false => Ok(()),
            true => Err(InputError::new(format!(
                "{}: the cut-over of this migration has said `switch now`; a further run would undo what the application has written to \
                 {} since. Remove this folder, or give another --state, to begin another migration",
                directory.display(),
                self.target
            ))),
        }
    }
}

/// The directory with the state, locked for this process.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    /// The lock lasts as long as this is open.
    _lock: File,
}

impl StateDirectory {
    /// Makes the directory if there is none, and locks it. Fails if another process has it.
    pub fn open(path: &Path) -> Result<StateDirectory, MigrateError> {
        fs::create_dir_all(path).map_err(file_error(path))?;
        let lock_path = path.join(LOCK_FILE);
        let lock = File::create(&lock_path).map_err(file_error(&lock_path))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => InputError::new(format!(
                "{}: another migration uses this directory; wait for it, or give another --state",
                path.display()
            ))
            .into(),
            fs::TryLockError::Error(source) => MigrateError::File { path: lock_path.clone(), source },
        })?;
        Ok(StateDirectory { path: path.to_owned(), _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The state of an earlier run. Fails if that was a migration of other servers, or if the file cannot be read.
    pub fn load(&self, source: &str, target: &str) -> Result<Option<State>, MigrateError> {
        let Some(state) = read(&self.path)? else { return Ok(None) };
        if (state.source.as_str(), state.target.as_str()) != (source, target) {
            return Err(InputError::new(format!(
                "{}: this is the state of a migration from {} to {}; give another --state",
                self.path.display(),
                state.source,
                state.target
            ))
            .into());
        }
        Ok(Some(state))
    }

    /// Replaces the state, durably. Fails with the system's error; the old state stays then.
    pub fn save(&self, state: &State) -> Result<(), MigrateError> {
        let text = serde_json::to_vec_pretty(&State { version: VERSION, ..state.clone() })
            .map_err(|error| MigrateError::File { path: self.path.join(STATE_FILE), source: error.into() })?;
        replace(&self.path.join(STATE_FILE), &text, FileDurability::Synced)
    }
}

/// The state in a directory, without a lock. Fails if the file cannot be read.
pub fn read(directory: &Path) -> Result<Option<State>, MigrateError> {
    let path = directory.join(STATE_FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(MigrateError::File { path, source }),
    };
    let unusable = |why: String| {
        InputError::new(format!(
            "{}: {why}; give another --state, or remove the file to begin anew",
            path.display()
        ))
    };
    let state: State = serde_json::from_slice(&text).map_err(|error| unusable(error.to_string()))?;
    match state.version {
        VERSION => Ok(Some(state)),
        other => Err(unusable(format!("version {other} of the state is not known")).into()),
    }
}

/// Whether a file must survive the loss of power.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileDurability {
    Synced,
    Unsynced,
}

/// Writes a file beside `path` and renames it to `path`, so that readers see the old or the new one. Fails with the system's error.
pub fn replace(path: &Path, text: &[u8], durability: FileDurability) -> Result<(), MigrateError> {
    let new = path.with_extension("new");
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(text)?;
        if durability == FileDurability::Synced {
            file.sync_all()?;
        }
        fs::rename(&new, path)
    };
    write().map_err(file_error(path))
}

fn file_error(path: &Path) -> impl Fn(io::Error) -> MigrateError {
    let path = path.to_owned();
    move |source| MigrateError::File { path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::Work;

    #[test]
    fn a_state_is_read_back_by_the_same_migration() {
        let folder = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(&folder.path().join("state")).unwrap();
        assert_eq!(directory.load("a:1", "b:2").unwrap(), None);
        let segments = vec![StoredSegment { work: Some(Work::Copy), end: None }];
        let table = TableState { source_id: "s".to_owned(), segments, rows: 5, ..TableState::default() };
        let state = State {
            version: VERSION,
            source: "a:1".to_owned(),
            target: "b:2".to_owned(),
            tables: BTreeMap::from([("x.y".to_owned(), table)]),
            ..State::default()
        };
        directory.save(&state).unwrap();
        assert_eq!(directory.load("a:1", "b:2").unwrap(), Some(state));
        let error = directory.load("a:1", "c:2").unwrap_err().to_string();
        assert!(error.contains("from a:1 to b:2"), "{error}");
    }

    #[test]
    fn a_state_is_closed_once_the_application_has_switched() {
        let folder = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(folder.path()).unwrap();
        let state = State { target: "b:2".to_owned(), ..State::default() };
        state.check_open(folder.path()).unwrap();
        directory.save(&State { switched: true, ..state }).unwrap();
        let error = read(folder.path()).unwrap().unwrap().check_open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("b:2") && error.contains("another --state"), "{error}");
    }

    #[test]
    fn a_directory_has_one_user() {
        let folder = tempfile::tempdir().unwrap();
        let first = StateDirectory::open(folder.path()).unwrap();
        let error = StateDirectory::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("another migration"), "{error}");
        drop(first);
        StateDirectory::open(folder.path()).unwrap();
    }

    #[test]
    fn a_damaged_state_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(folder.path()).unwrap();
        for (text, why) in
            [("{", "EOF"), (r#"{"version":9,"source":"","target":"","tables":{}}"#, "version 9")]
        {
            fs::write(folder.path().join(STATE_FILE), text).unwrap();
            let error = directory.load("", "").unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("--state"), "{error}");
        }
    }
}
