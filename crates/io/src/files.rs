//! Files, as a storage engine needs them: append, read anywhere, and know when bytes are durable.
//!
//! The contract follows the guarantees of POSIX, and no more:
//!
//! - Appended bytes survive the end of the process at once, but a power loss only after [`File::sync_data`] returned.
//! - A new, renamed or removed name survives a power loss only after [`Files::sync_dir`] of its directory returned.
//! - After `sync_data` has failed once, the content of the disk is unknown: a later success means nothing.

use std::io::Result;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A tree of directories and files.
pub trait Files: Send + Sync {
    /// Creates `dir` and its missing parents. An existing directory is not an error.
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

    /// Takes the exclusive lock named `path` as long as the result lives. Fails with `WouldBlock` if it is held, in
    /// this process or another.
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>>;
}

/// An open file. Handles are shared: one thread may append while another syncs or reads.
pub trait File: Send + Sync {
    /// Writes all of `bytes` at the end. One appender at a time. If this fails, a part of `bytes` may have been
    /// written; [`File::len`] tells how much.
    fn append(&self, bytes: &[u8]) -> Result<()>;

    /// Makes everything appended before the call durable. Expensive: one call should cover many appends.
    fn sync_data(&self) -> Result<()>;

    /// Reads into `buffer` from `offset`. Returns the number of bytes read, fewer than the length of `buffer` only at
    /// the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Length in bytes.
    fn len(&self) -> Result<u64>;

    /// Whether the file holds nothing.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Truncates the file to `len` bytes. The next append goes there.
    fn truncate(&self, len: u64) -> Result<()>;

    /// Hints that the bytes in `range` are unlikely to be read soon, so that the system may reuse the memory that
    /// caches them, as far as they are durable. Reads work as before. A file may ignore it.
    fn uncache(&self, range: Range<u64>);
}

/// Holds an exclusive lock until dropped.
pub trait Lock: Send + Sync {}
