//! Finds the results that a report shows.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::result::{FORMAT, FORMAT_VERSION, RunResult};
use crate::sweep::document::{self, SweepResult};

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
    /// A result that lacks what every result has.
    #[error("{path} is no whole result: {cause}")]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// What is missing.
        cause: serde_json::Error,
    },
    /// JSON that is no result.
    #[error("{path} is JSON but no result of `rekindle bench`: its \"format\" is neither {FORMAT} nor {sweep}", sweep = document::FORMAT)]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A result written by a newer release.
    #[error("{path} has format version {found}; this release reads up to {known}")]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The highest version this release reads.
        known: u32,
    },
    /// Nothing to show.
    #[error("{path} holds no results: write some with `rekindle bench … --json {path}/`")]
    Empty {
        /// The folder.
        path: PathBuf,
    },
}

/// What a folder holds.
#[derive(Debug)]
pub struct Collected {
    /// The results in the order in which they were measured, without their histograms: a page has
    /// the curves.
    pub runs: Vec<Value>,
    /// The sweeps, in the order in which they were made.
    pub sweeps: Vec<Value>,
    /// Why files that should be results are not among them.
    pub skipped: Vec<ReportError>,
}

/// The results in `folder`: files ending in `.json` of this format. Files that end in it and are
/// broken or something else are skipped and named, all others passed over.
pub fn collect(folder: &Path) -> Result<Collected, ReportError> {
    let unreadable = |cause| ReportError::Unreadable { path: folder.to_owned(), cause };
    let (mut runs, mut sweeps, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        match read(&path) {
            Ok(found) if found["format"] == document::FORMAT => sweeps.push(found),
            Ok(run) => runs.push(run),
            Err(error) => skipped.push(error),
        }
    }
    if runs.is_empty() && sweeps.is_empty() {
        return Err(skipped.pop().unwrap_or_else(|| ReportError::Empty { path: folder.to_owned() }));
    }
    runs.sort_by_key(|run| (text_of(run, "started_at"), text_of(run, "id")));
    sweeps.sort_by_key(|sweep| (text_of(sweep, "started_at"), text_of(sweep, "id")));
    skipped.sort_by_key(ToString::to_string);
    Ok(Collected { runs, sweeps, skipped })
}

/// One result or sweep.
fn read(path: &Path) -> Result<Value, ReportError> {
    let path = path.to_owned();
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(cause) => return Err(ReportError::Unreadable { path, cause }),
    };
    let mut run: Value = match serde_json::from_str(&text) {
        Ok(run) => run,
        Err(cause) => return Err(ReportError::NotJson { path, cause }),
    };
    let is_sweep = run["format"] == document::FORMAT;
    if run["format"] != FORMAT && !is_sweep {
        return Err(ReportError::Foreign { path });
    }
    let known = if is_sweep { document::FORMAT_VERSION } else { FORMAT_VERSION };
    let found = run["format_version"].as_u64().unwrap_or(0);
    if found > u64::from(known) {
        return Err(ReportError::TooNew { path, found, known });
    }
    let whole = match is_sweep {
        true => SweepResult::deserialize(&run).map(drop),
        false => RunResult::deserialize(&run).map(drop),
    };
    if let Err(cause) = whole {
        return Err(ReportError::Incomplete { path, cause });
    }
    drop_histograms(&mut run);
    Ok(run)
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
