//! The data directory: whether there is one that this program can read, and whether a server has it open.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The file that marks a folder as a data directory and states its format version.
pub const MARK: &str = "rekindle_data_version";
/// The content of the mark in the version that this program reads and writes.
pub const MARK_TEXT: &[u8] = b"1\n";
/// The file whose lock a running server holds.
pub const LOCK: &str = "lock";
/// The file with the process id of the server that holds the lock.
pub const LOCK_OWNER: &str = "lock_owner";

/// Why a data directory cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Nothing has this name.
    #[error("there is no data directory at {path}")]
    Missing { path: String },
    /// It is a file.
    #[error("{path} is a file; name the data directory, the folder that `--directory` names")]
    NotAFolder { path: String },
    /// The folder has no files.
    #[error("{path} is empty: no server has been started with this directory")]
    Empty { path: String },
    /// The folder has other files.
    #[error("{path} is not a data directory: it has no file `{mark}`", mark = MARK)]
    Foreign { path: String },
    /// The data directory has another format version.
    #[error(
        "the data directory {path} was written by another version of Rekindle: {mark} says {found:?}, and this version \
         reads {known:?}", mark = MARK
    )]
    OtherVersion {
        path: String,
        /// The version in the file.
        found: String,
        /// The version that this program reads.
        known: String,
    },
    /// A later version has written a part of it.
    #[error("the data directory {path} was written by a later version of Rekindle: {cause}")]
    Newer {
        path: String,
        /// The part, with its version.
        cause: String,
    },
    /// A server has it open.
    #[error("the data directory {path} is in use by another process{owner}; stop that server first")]
    InUse {
        path: String,
        /// ` (pid 123)`, if known.
        owner: String,
    },
    /// A system call failed.
    #[error("the data directory {path} cannot be read: {cause}")]
    Io {
        path: String,
        /// The system's error.
        cause: std::io::Error,
    },
}

/// A data directory that no server can open as long as this value lives.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: Option<File>,
}

impl Folder {
    /// Opens the data directory at `path`. Creates and changes no file.
    pub fn open(path: &Path) -> Result<Folder, FolderError> {
        let shown = path.display().to_string();
        let failed = |cause| FolderError::Io { path: shown.clone(), cause };
        match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(FolderError::NotAFolder { path: shown }),
            Err(cause) if cause.kind() == ErrorKind::NotFound => {
                return Err(FolderError::Missing { path: shown });
            }
            Err(cause) => return Err(failed(cause)),
        }
        check_mark(path, &shown)?;
        let lock = match File::open(path.join(LOCK)) {
            Ok(file) => Some(file),
            // A copy of a data directory need not have it.
            Err(cause) if cause.kind() == ErrorKind::NotFound => None,
            Err(cause) => return Err(failed(cause)),
        };
        if let Some(lock) = &lock {
            match lock.try_lock_shared() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(FolderError::InUse { path: shown, owner: owner(path) });
                }
                Err(TryLockError::Error(cause)) => return Err(failed(cause)),
            }
        }
        Ok(Folder { path: path.to_owned(), _lock: lock })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the engine.
    #[must_use]
    pub fn engine(&self) -> PathBuf {
        self.path.join("engine")
    }

    /// The folder of the log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// The refusal of a part that a later version has written.
    #[must_use]
    pub fn newer(&self, cause: String) -> FolderError {
        FolderError::Newer { path: self.path.display().to_string(), cause }
    }
}

fn check_mark(path: &Path, shown: &str) -> Result<(), FolderError> {
    let failed = |cause| FolderError::Io { path: shown.to_owned(), cause };
    match std::fs::read(path.join(MARK)) {
        Ok(text) if text == MARK_TEXT => Ok(()),
        Ok(text) => Err(FolderError::OtherVersion {
            path: shown.to_owned(),
            found: String::from_utf8_lossy(&text).trim().chars().take(40).collect(),
            known: String::from_utf8_lossy(MARK_TEXT).trim().to_owned(),
        }),
        Err(cause) if cause.kind() == ErrorKind::NotFound => {
            let is_empty = std::fs::read_dir(path).map_err(failed)?.next().is_none();
            Err(match is_empty {
                true => FolderError::Empty { path: shown.to_owned() },
                false => FolderError::Foreign { path: shown.to_owned() },
            })
        }
        Err(cause) => Err(failed(cause)),
    }
}

fn owner(path: &Path) -> String {
    let pid = std::fs::read_to_string(path.join(LOCK_OWNER)).ok();
    pid.map(|pid| format!(" (pid {})", pid.trim())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &Path) -> String {
        Folder::open(path).unwrap_err().to_string()
    }

    #[test]
    fn folders_that_cannot_be_checked_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        assert!(refused(&path).starts_with("there is no data directory at"));
        std::fs::write(&path, "text").unwrap();
        assert!(refused(&path).contains("is a file"));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(refused(&path).contains("is empty"));
        std::fs::write(path.join("letter.txt"), "dear").unwrap();
        assert!(refused(&path).contains("is not a data directory"));
        std::fs::write(path.join(MARK), "7\n").unwrap();
        assert!(refused(&path).contains("another version of Rekindle"));
        std::fs::write(path.join(MARK), MARK_TEXT).unwrap();
        assert!(Folder::open(&path).is_ok());
    }

    #[test]
    fn a_folder_in_use_is_refused_and_two_checks_are_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(MARK), MARK_TEXT).unwrap();
        std::fs::write(dir.path().join(LOCK), "").unwrap();
        std::fs::write(dir.path().join(LOCK_OWNER), "123\n").unwrap();
        let server = File::options().write(true).open(dir.path().join(LOCK)).unwrap();
        server.try_lock().unwrap();
        assert!(refused(dir.path()).contains("in use by another process (pid 123)"));
        server.unlock().unwrap();
        let first = Folder::open(dir.path()).unwrap();
        assert!(Folder::open(dir.path()).is_ok());
        assert!(server.try_lock().is_err(), "no server can start during a check");
        drop(first);
    }
}
