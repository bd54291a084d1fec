//! The folder that salvage writes to.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::SalvageError;

/// Creates the folder `to`, or checks that it is empty. It must not be inside `from`.
pub(super) fn prepare(from: &Path, to: &Path) -> Result<PathBuf, SalvageError> {
    let shown = to.display().to_string();
    let failed = |cause| SalvageError::Target { path: shown.clone(), cause };
    match std::fs::read_dir(to) {
        Ok(mut inside) => {
            if inside.next().is_some() {
                return Err(SalvageError::NotEmpty { path: shown });
            }
        }
        Err(cause) if cause.kind() == ErrorKind::NotFound => std::fs::create_dir_all(to).map_err(failed)?,
        Err(cause) => return Err(failed(cause)),
    }
    let to = to.canonicalize().map_err(failed)?;
    let from = from.canonicalize().map_err(failed)?;
    if to.starts_with(&from) {
        return Err(SalvageError::Inside { path: shown });
    }
    Ok(to)
}

/// Fails if the file system of `to` has less than `needed` free bytes.
pub(super) fn check_space(to: &Path, needed: u64) -> Result<(), SalvageError> {
    let path = || to.display().to_string();
    let found = rustix::fs::statvfs(to);
    let found = found.map_err(|cause| SalvageError::Target { path: path(), cause: cause.into() })?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    match free < needed {
        true => Err(SalvageError::TooSmall { path: path(), free, needed }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_that_cannot_be_used_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("data");
        std::fs::create_dir(&from).unwrap();
        let text = |to: &Path| prepare(&from, to).unwrap_err().to_string();
        assert!(prepare(&from, &dir.path().join("new/deep")).is_ok());
        std::fs::write(dir.path().join("new/file"), "").unwrap();
        assert!(text(&dir.path().join("new")).contains("is not empty"));
        assert!(text(&dir.path().join("new/file")).contains("cannot be used"));
        assert!(text(&from.join("inside")).contains("inside the data directory"));
        assert!(check_space(dir.path(), 1).is_ok());
        let text = check_space(dir.path(), u64::MAX).unwrap_err().to_string();
        assert!(text.contains("bytes free"), "{text}");
    }
}
