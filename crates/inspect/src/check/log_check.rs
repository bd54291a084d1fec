//! The segments of the log.

use io::real::RealFiles;
use log::LogError;
use log::file::ExaminedLog;

use super::CheckError;
use crate::folder::Folder;
use crate::report::{DamageKind, Report};

/// Reads the log and reports its damage. `None` if there is no log.
pub(super) fn read(folder: &Folder, report: &mut Report) -> Result<Option<ExaminedLog>, CheckError> {
    let dir = folder.log();
    if !log::file::exists(&RealFiles, &dir)? {
        let has_engine = folder.engine().join("CURRENT").exists();
        if has_engine || folder.path().join("identity.json").exists() {
            report.add(DamageKind::Log, None, format!("there are no segments in {}", dir.display()));
        }
        return Ok(None);
    }
    let log = ExaminedLog::read(&RealFiles, &dir).map_err(CheckError::Log)?;
    report.log_segments = log.segments;
    report.log_records = log.records;
    report.log_bytes = log.bytes;
    for damage in &log.damages {
        match damage {
            LogError::Version { .. } => return Err(folder.newer(damage.to_string()).into()),
            _ => report.add(DamageKind::Log, None, damage.to_string()),
        }
    }
    if let Some((path, offset)) = &log.torn {
        report.notes.push(format!(
            "{} ends with an unfinished append at byte {offset}, which was never acknowledged",
            path.display()
        ));
    }
    Ok(Some(log))
}
