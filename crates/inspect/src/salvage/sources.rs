//! The engine that rows are read from: as it is, or a repaired copy of its files.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use engine::rocks::{RocksEngine, Tolerance};

use super::SalvageError;
use crate::check::OpenEngine;
use crate::folder::Folder;
use crate::report::{DamageKind, Report};

/// The folder of the repaired copy, inside the target.
const COPY: &str = ".engine";

/// Opens the engine of `folder` as it is. `None` if the list of its files cannot be read.
pub(super) fn open(folder: &Folder, report: &mut Report) -> Option<OpenEngine> {
    let mut last = None;
    for tolerance in [Tolerance::None, Tolerance::Damage] {
        match RocksEngine::open_read_only(&folder.engine(), &OpenEngine::options(), tolerance) {
            Ok(engine) => {
                report_opening(last, report);
                return Some(OpenEngine::new(engine));
            }
            Err(cause) => last = last.or(Some(cause.to_string())),
        }
    }
    report_opening(last, report);
    None
}

fn report_opening(cause: Option<String>, report: &mut Report) {
    if let Some(cause) = cause {
        report.add(DamageKind::File, None, format!("the engine: {cause}"));
    }
}

/// A copy of the engine's files whose list was made anew. The folder is removed with the value.
pub(super) struct RepairedCopy {
    // Dropped, and so closed, before the folder is removed.
    open: Option<OpenEngine>,
    dir: PathBuf,
}

impl RepairedCopy {
    /// Links the data files of `engine` into a folder in `target`, or copies them onto another file system, and repairs the
    /// copy. Files that cannot be read whole are left out.
    pub(super) fn make(engine: &Path, target: &Path) -> Result<RepairedCopy, SalvageError> {
        let dir = target.join(COPY);
        let failed = |cause| SalvageError::Target { path: dir.display().to_string(), cause };
        std::fs::create_dir(&dir).map_err(failed)?;
        let mut copy = RepairedCopy { open: None, dir: dir.clone() };
        for entry in std::fs::read_dir(engine).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let is_data = path.extension().is_some_and(|end| end == "sst" || end == "blob");
            if let (true, Some(name)) = (is_data, path.file_name()) {
                link_or_copy(&path, &dir.join(name)).map_err(failed)?;
            }
        }
        copy.open = Some(OpenEngine::new(RocksEngine::open_repaired(&dir, &OpenEngine::options())?));
        Ok(copy)
    }

    pub(super) fn open(&self) -> Option<&OpenEngine> {
        self.open.as_ref()
    }
}

impl Drop for RepairedCopy {
    fn drop(&mut self) {
        self.open = None;
        // A folder that stays is named by the next salvage, which finds its target not empty.
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

fn link_or_copy(from: &Path, to: &Path) -> std::io::Result<()> {
    match std::fs::hard_link(from, to) {
        Err(cause) if cause.kind() == ErrorKind::StorageFull => Err(cause),
        // Another file system, or one without links.
        Err(_) => std::fs::copy(from, to).map(|_| ()),
        Ok(()) => Ok(()),
    }
}
