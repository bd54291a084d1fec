//! Empties the kernel's page cache of files: pages that one process has read are not counted to the control group of
//! the next one that reads them, and would hide the disk from it.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use rustix::fs::{Advice, fadvise};

/// Writes these files to the disk and drops their pages. Pages that a process has mapped stay.
pub fn drop_files(files: &[PathBuf]) -> io::Result<()> {
    files.iter().try_for_each(|path| {
        let file = File::open(path)?;
        file.sync_all()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "text").unwrap();
        drop_files(std::slice::from_ref(&path)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
        assert!(drop_files(&[folder.path().join("none")]).is_err());
    }
}
