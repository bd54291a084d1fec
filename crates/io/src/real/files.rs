//! The file system of the operating system.

use std::fs;
use std::io::{Error, ErrorKind, Result, Write};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, fadvise};

use crate::{File, Files, Lock};

/// The machine's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFiles;

struct RealFile {
    // Opened in append mode, so that the kernel places every write at the end.
    file: fs::File,
}

/// The lock belongs to the open file. The kernel releases it when the handle is closed, also when the process is
/// killed.
struct RealLock {
    _file: fs::File,
}

impl Files for RealFiles {
    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).append(true).create_new(true).open(path)?;
        Ok(Arc::new(RealFile { file }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).append(true).open(path)?;
        Ok(Arc::new(RealFile { file }))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        fs::read(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(dir)? {
            paths.push(entry?.path());
        }
        paths.sort();
        Ok(paths)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(RealLock { _file: file })),
            Err(fs::TryLockError::WouldBlock) => Err(Error::from(ErrorKind::WouldBlock)),
            Err(fs::TryLockError::Error(cause)) => Err(cause),
        }
    }
}

impl File for RealFile {
    fn append(&self, bytes: &[u8]) -> Result<()> {
        (&self.file).write_all(bytes)
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(filled)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }

    fn uncache(&self, range: Range<u64>) {
        if let Some(bytes) = NonZeroU64::new(range.end.saturating_sub(range.start)) {
            // A file system that keeps caching does no harm.
            let _ignored = fadvise(&self.file, range.start, Some(bytes), Advice::DontNeed);
        }
    }
}

impl Lock for RealLock {}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;

    use rustix::fs::{StatFs, fstatfs};
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    use super::*;

    const MB: u64 = 1 << 20;

    /// The magic number of a file system whose files exist only in memory (`tmpfs(5)`).
    const TMPFS_MAGIC: u64 = 0x0102_1994;

    fn is_cached(file: &fs::File, offset: u64) -> bool {
        let mut byte = [0];
        match preadv2(file, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT) {
            Ok(count) => count == 1,
            Err(Errno::AGAIN) => false,
            Err(cause) => panic!("{cause}"),
        }
    }

    #[test]
    fn uncached_bytes_leave_the_memory_and_are_read_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let file = RealFiles.create(&path).unwrap();
        let bytes: Vec<u8> = (0..8 * MB).map(|at| (at % 251) as u8).collect();
        file.append(&bytes).unwrap();
        file.sync_data().unwrap();
        let watched = fs::File::open(&path).unwrap();
        let StatFs { f_type, .. } = fstatfs(&watched).unwrap();
        if f_type as u64 == TMPFS_MAGIC {
            return;
        }
        file.uncache(0..0);
        assert!(is_cached(&watched, 0), "nothing was said of it");
        // A page that the kernel is using stays.
        let leaves = |offset| {
            (0..1000).any(|_| {
                file.uncache(0..4 * MB);
                !is_cached(&watched, offset)
            })
        };
        assert!(leaves(0), "the first page stays");
        assert!(leaves(4 * MB - 1), "the last page stays");
        assert!(is_cached(&watched, 6 * MB), "later bytes stay cached");
        let mut found = vec![0; bytes.len()];
        assert_eq!(file.read_at(0, &mut found).unwrap(), bytes.len());
        assert_eq!(found, bytes);
    }
}
