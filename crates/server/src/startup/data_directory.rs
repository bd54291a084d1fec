//! The data directory of a node, and the lock that keeps other processes out of it.

use std::io;
use std::path::{Path, PathBuf};

use ::io::{Files, Lock};
use inspect::folder::{LOCK, LOCK_OWNER, MARK, MARK_TEXT};

const MARK_NEW: &str = "rekindle_data_version.new";

/// A data directory, locked for this process until it is dropped.
pub struct DataDirectory {
    path: PathBuf,
    files: Box<dyn Files>,
    _lock: Box<dyn Lock>,
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// `serve` on a folder that does not exist or is empty.
    #[error(
        "there is no data directory at {path}; `rekindle create --directory {path}` creates it, \
         and `rekindle` without a command creates it and serves it"
    )]
    Missing {
        /// The folder.
        path: String,
    },
    /// `create` on a data directory that exists.
    #[error(
        "the directory {path} is already a data directory; `rekindle serve --directory {path}` serves it"
    )]
    Exists {
        /// The folder.
        path: String,
    },
    /// The folder contains something else.
    #[error("the directory {path} is not empty and not a data directory; name another with --directory")]
    Foreign {
        /// The folder.
        path: String,
    },
    /// The data directory has another format version.
    #[error(
        "the data directory {path} was written by another version of Rekindle: {mark} says {found:?}, and this \
         version reads {known:?}", mark = MARK
    )]
    OtherVersion {
        /// The folder.
        path: String,
        /// The version in the file.
        found: String,
        /// The version that this program supports.
        known: String,
    },
    /// Another process has locked it.
    #[error(
        "the data directory {path} is in use by another process{owner}; \
         stop that process or name another directory with --directory"
    )]
    InUse {
        /// The folder.
        path: String,
        /// ` (pid 123)`, if known.
        owner: String,
    },
    /// A system call failed.
    #[error("the data directory {path} cannot be used: {cause}")]
    Io {
        /// The folder.
        path: String,
        /// The system's error.
        cause: io::Error,
    },
}

/// Whether the folder must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// It must not exist.
    Create,
    /// It must exist.
    Open,
    /// Either.
    CreateOrOpen,
}

impl DataDirectory {
    /// Locks the folder at `path` for this process.
    pub fn take(path: &Path, mode: OpenMode, files: Box<dyn Files>) -> Result<DataDirectory, DirectoryError> {
        let shown = path.display().to_string();
        let failed = |cause: io::Error| DirectoryError::Io { path: shown.clone(), cause };
        let found = look(&*files, path).map_err(failed)?;
        match (found, mode) {
            (DirectoryContent::Ours, OpenMode::Create) => return Err(DirectoryError::Exists { path: shown }),
            (DirectoryContent::Nothing, OpenMode::Open) => {
                return Err(DirectoryError::Missing { path: shown });
            }
            (DirectoryContent::Foreign, _) => return Err(DirectoryError::Foreign { path: shown }),
            (DirectoryContent::OtherVersion, _) => return Err(other_version(&*files, path)),
            (DirectoryContent::Nothing, _) => files.create_dir_all(path).map_err(failed)?,
            (DirectoryContent::Ours, _) => {}
        }
        let lock = files.lock(&path.join(LOCK)).map_err(|cause| match cause.kind() {
            io::ErrorKind::WouldBlock => {
                DirectoryError::InUse { path: shown.clone(), owner: owner(&*files, path) }
            }
            _ => failed(cause),
        })?;
        note_owner(&*files, path).map_err(failed)?;
        if found == DirectoryContent::Nothing {
            tracing::info!("Initializing directory {shown}");
            // Written under another name and renamed: a crash must not leave an empty version file.
            let new = path.join(MARK_NEW);
            drop(files.remove(&new));
            write_new(&*files, &new, MARK_TEXT).map_err(failed)?;
            files.rename(&new, &path.join(MARK)).map_err(failed)?;
            files.sync_dir(path).map_err(failed)?;
        }
        Ok(DataDirectory { path: path.to_owned(), files, _lock: lock })
    }

    /// Whether there is no data directory at `path` yet.
    #[must_use]
    pub fn is_new(path: &Path, files: &dyn Files) -> bool {
        matches!(look(files, path), Ok(DirectoryContent::Nothing))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DataDirectory {
    fn drop(&mut self) {
        // Only informs later error messages; the lock itself is the kernel's.
        drop(self.files.remove(&self.path.join(LOCK_OWNER)));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirectoryContent {
    Nothing,
    Ours,
    OtherVersion,
    Foreign,
}

fn look(files: &dyn Files, path: &Path) -> io::Result<DirectoryContent> {
    match files.read(&path.join(MARK)) {
        Ok(text) if text == MARK_TEXT => return Ok(DirectoryContent::Ours),
        Ok(_) => return Ok(DirectoryContent::OtherVersion),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let inside = match files.list(path) {
        Ok(inside) => inside,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DirectoryContent::Nothing),
        Err(error) => return Err(error),
    };
    // The files that a process leaves when it is killed while creating the folder.
    let unfinished = |path: &PathBuf| [LOCK, LOCK_OWNER, MARK_NEW].iter().any(|name| path.ends_with(name));
    Ok(if inside.iter().all(unfinished) { DirectoryContent::Nothing } else { DirectoryContent::Foreign })
}

fn other_version(files: &dyn Files, path: &Path) -> DirectoryError {
    let found = files.read(&path.join(MARK)).unwrap_or_default();
    DirectoryError::OtherVersion {
        path: path.display().to_string(),
        found: String::from_utf8_lossy(&found).trim().chars().take(40).collect(),
        known: String::from_utf8_lossy(MARK_TEXT).trim().to_owned(),
    }
}

fn owner(files: &dyn Files, path: &Path) -> String {
    let pid = files.read(&path.join(LOCK_OWNER)).ok().and_then(|text| String::from_utf8(text).ok());
    pid.map(|pid| format!(" (pid {})", pid.trim())).unwrap_or_default()
}

fn note_owner(files: &dyn Files, path: &Path) -> io::Result<()> {
    let note = path.join(LOCK_OWNER);
    match files.remove(&note) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    write_new(files, &note, format!("{}\n", std::process::id()).as_bytes())
}

fn write_new(files: &dyn Files, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = files.create(path)?;
    file.append(bytes)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::io::real::RealFiles;

    fn take(path: &Path, mode: OpenMode) -> Result<DataDirectory, String> {
        DataDirectory::take(path, mode, Box::new(RealFiles)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_error_for_a_second_user_names_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let first = take(&path, OpenMode::CreateOrOpen).unwrap();
        let refusal = take(&path, OpenMode::CreateOrOpen).err().unwrap();
        let expected = format!(
            "the data directory {} is in use by another process (pid {})",
            path.display(),
            std::process::id()
        );
        assert!(refusal.starts_with(&expected), "{refusal}");
        drop(first);
        assert!(take(&path, OpenMode::Open).is_ok());
    }

    #[test]
    fn create_and_serve_name_the_correct_command() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        assert!(take(&path, OpenMode::Open).err().unwrap().contains("`rekindle create --directory"));
        drop(take(&path, OpenMode::Create).unwrap());
        assert!(take(&path, OpenMode::Create).err().unwrap().contains("`rekindle serve --directory"));
    }

    #[test]
    fn a_folder_of_something_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("letter.txt"), "dear").unwrap();
        assert!(take(dir.path(), OpenMode::CreateOrOpen).err().unwrap().contains("not a data directory"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_empty_folder_becomes_one() {
        let dir = tempfile::tempdir().unwrap();
        assert!(take(dir.path(), OpenMode::CreateOrOpen).is_ok());
    }

    #[test]
    fn another_version_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(MARK), "2\n").unwrap();
        assert!(take(dir.path(), OpenMode::CreateOrOpen).err().unwrap().contains("another version"));
    }
}
