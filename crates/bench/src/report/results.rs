//! Finds the results for a report.

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
        /// The system's error.
        cause: std::io::Error,
    },
    /// A `.json` file is not JSON.
    #[error("{path} is not JSON: {cause}")]
    NotJson {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        cause: serde_json::Error,
    },
    /// A result lacks a mandatory member.
    #[error("{path} is an incomplete result: {cause}")]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The missing member.
        cause: serde_json::Error,
    },
    /// The JSON is not a result.
    #[error("{path} is JSON but not a result of `rekindle bench`: its \"format\" is neither {FORMAT} nor {sweep}", sweep = document::FORMAT)]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A newer release wrote the result.
    #[error("{path} has format version {found}; this release reads up to {known}")]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The highest version that this release supports.
        known: u32,
    },
    /// The folder contains no results.
    #[error("{path} contains no results: write some with `rekindle bench … --json {path}/`")]
    Empty {
        /// The folder.
        path: PathBuf,
    },
}

/// The results in a folder.
#[derive(Debug)]
pub struct Collected {
    /// The results in the order of their measurement, without their histograms: a page only uses the curves.
    pub runs: Vec<Value>,
    /// The sweeps, in the order of their measurement.
    pub sweeps: Vec<Value>,
    /// Why `.json` files were skipped.
    pub skipped: Vec<ReportError>,
}

/// Reads the results in `folder`: the `.json` files of these formats. Other or broken `.json` files are skipped and
/// listed; files with other names are ignored.
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

/// Reads one result or sweep.
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
