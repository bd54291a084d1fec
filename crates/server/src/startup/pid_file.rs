//! A file that tells scripts which process to signal.

use std::path::{Path, PathBuf};

use super::start_error::StartError;

/// Exists while the node runs.
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes this process's id to `path`.
    pub fn write(path: &Path) -> Result<PidFile, StartError> {
        let failed = |cause| StartError::File { what: "pid file", path: path.display().to_string(), cause };
        std::fs::write(path, format!("{}\n", std::process::id())).map_err(failed)?;
        Ok(PidFile(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // A file somebody else removed is gone as well.
        drop(std::fs::remove_file(&self.0));
    }
}
