//! A file with the process id, for scripts that send signals.

use std::path::{Path, PathBuf};

use super::start_error::StartError;

/// The file exists until this is dropped.
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes the id of this process to `path`.
    pub fn write(path: &Path) -> Result<PidFile, StartError> {
        let failed = |cause| StartError::File { what: "pid file", path: path.display().to_string(), cause };
        std::fs::write(path, format!("{}\n", std::process::id())).map_err(failed)?;
        Ok(PidFile(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Fails if the file was already removed, which is fine.
        drop(std::fs::remove_file(&self.0));
    }
}
