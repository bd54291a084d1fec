//! Files, as a store needs them: append, read anywhere, and say when bytes are on the disk.
//!
//! The contract follows what POSIX really promises, and no more:
//!
//! - appended bytes survive the end of the process at once, a power loss only after
//!   [`File::sync_data`] returned;
//! - a new, renamed or removed name survives a power loss only after [`Files::sync_dir`] of its
//!   folder returned;
//! - after `sync_data` failed once nobody knows what is on the disk: never call it again and
//!   believe the answer.

use std::io::Result;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A tree of folders and files.
pub trait Files: Send + Sync {
    /// Creates `dir` and its missing parents. An existing folder is not an error.
    fn create_dir_all(&self, dir: &Path) -> Result<()>;

    /// Creates an empty file. Fails with `AlreadyExists` if the name is taken.
    fn create(&self, path: &Path) -> Result<Arc<dyn File>>;

    /// Opens an existing file for reading and appending. Fails with `NotFound`.
    fn open(&self, path: &Path) -> Result<Arc<dyn File>>;

    /// The whole content of a file.
    fn read(&self, path: &Path) -> Result<Vec<u8>>;

    /// The paths directly inside `dir`, in byte order of their names.
    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>>;

    /// Removes a file. Fails with `NotFound`.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Renames a file, replacing `to` atomically if it exists.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Makes the names inside `dir` durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;

    /// Takes the exclusive lock named `path` for as long as the result lives. Fails with
    /// `WouldBlock` if anyone, in this process or another, holds it.
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>>;
}

/// An open file. Handles are shared: one thread may append while another syncs or reads.
pub trait File: Send + Sync {
    /// Writes all of `bytes` at the end. One appender at a time. If it fails, a part of `bytes`
    /// may have been written: [`File::len`] tells.
    fn append(&self, bytes: &[u8]) -> Result<()>;

    /// Makes everything appended before the call durable. Expensive: ask once for many.
    fn sync_data(&self) -> Result<()>;

    /// Reads into `buffer` from `offset`; returns how many bytes there were, fewer than asked
    /// only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Length in bytes.
    fn len(&self) -> Result<u64>;

    /// Whether the file holds nothing.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file to `len` bytes. The next append goes there.
    fn truncate(&self, len: u64) -> Result<()>;

    /// Says that nobody is likely to read the bytes in `range` soon. The system may then use the memory in which it
    /// caches those that are durable; they are read as before. A hint, which a file may ignore.
    fn uncache(&self, range: Range<u64>);
}

/// Holds an exclusive lock until dropped.
pub trait Lock: Send + Sync {}
