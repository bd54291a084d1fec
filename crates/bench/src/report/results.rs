//! Finds the results that a report shows.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::result::{FORMAT, FORMAT_VERSION};

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file or folder could not be read.
    #[error("{path} cannot be read: {cause}")]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The system's word for it.
        cause: std::io::Error,
    },
    /// A file that ends in `.json` is no JSON.
    #[error("{path} is not JSON: {cause}")]
    NotJson {
        /// The file.
        path: PathBuf,
        /// Where and why.
        cause: serde_json::Error,
    },
    /// A result written by a newer release.
    #[error("{path} has format version {found}; this release reads up to {FORMAT_VERSION}")]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// Nothing to show.
    #[error("{path} holds no results: write some with `rekindle bench … --json {path}/`")]
    Empty {
        /// The folder.
        path: PathBuf,
    },
}

/// The results in `folder` (files ending in `.json` of this format; others are passed over),
/// in the order in which they were measured. Histograms are left out: a page has the curves.
pub fn collect(folder: &Path) -> Result<Vec<Value>, ReportError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |cause| ReportError::Unreadable { path, cause }
    };
    let mut runs = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable(folder))? {
        let path = entry.map_err(unreadable(folder))?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(unreadable(&path))?;
        let mut run: Value = serde_json::from_str(&text)
            .map_err(|cause| ReportError::NotJson { path: path.clone(), cause })?;
        if run["format"] != FORMAT {
            continue;
        }
        let found = run["format_version"].as_u64().unwrap_or(0);
        if found > u64::from(FORMAT_VERSION) {
            return Err(ReportError::TooNew { path, found });
        }
        drop_histograms(&mut run);
        runs.push(run);
    }
    if runs.is_empty() {
        return Err(ReportError::Empty { path: folder.to_owned() });
    }
    runs.sort_by_key(|run| (text_of(run, "started_at"), text_of(run, "id")));
    Ok(runs)
}

fn text_of(run: &Value, member: &str) -> String {
    run[member].as_str().unwrap_or_default().to_owned()
}

fn drop_histograms(run: &mut Value) {
    let Some(operations) = run["operations"].as_array_mut() else { return };
    for operation in operations {
        for part in ["service", "intended", "failed_service"] {
            if let Some(latency) = operation[part].as_object_mut() {
                latency.remove("hdr");
            }
        }
    }
}
