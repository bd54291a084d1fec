//! `rekindle salvage`: writes every readable row of a data directory into files that `rekindle import` reads.
//!
//! Rows come from the engine as it is. Damaged blocks are read without their checksums, since each row has its own. Where a
//! file is missing or the list of files is damaged, a repaired copy of the files is read ([`sources`]), and large values
//! are looked for in their files. Changes that only the log has replace or delete what the engine has ([`log_rows`]).

mod info;
mod log_rows;
mod outcome;
mod place;
mod rows;
mod sources;
mod target;
mod writer;

use std::path::{Path, PathBuf};

use engine::{EngineError, Space};
use io::real::RealFiles;
use log::LogError;
use log::file::ExaminedLog;

pub use self::outcome::Salvaged;
use self::place::Places;
use self::rows::RowSalvage;
use self::sources::RepairedCopy;
use crate::catalog::CatalogRows;
use crate::check::{CheckError, OpenEngine, Records, read_records};
use crate::folder::{Folder, FolderError};
use crate::large_values::large_value_files;
use crate::progress::Progress;
use crate::report::{DamageKind, Report};
use crate::walk::walk;

/// The data directory, and the folder to write to.
#[derive(Clone, Debug)]
pub struct SalvageOptions {
    pub from: PathBuf,
    pub to: PathBuf,
}

/// Why nothing, or not everything, could be written.
#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    /// The data directory cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The target has files.
    #[error("{path} is not empty; name a new folder with --to")]
    NotEmpty { path: String },
    /// The target is in the data directory.
    #[error("{path} is inside the data directory; name another folder with --to")]
    Inside { path: String },
    /// The target has too little space.
    #[error(
        "{path} has {free} bytes free, and the rows take at least {needed}; name a folder on a larger disk with --to"
    )]
    TooSmall {
        path: String,
        /// The free space.
        free: u64,
        /// The bytes of the rows as they are stored.
        needed: u64,
    },
    /// The target cannot be created or read.
    #[error("{path} cannot be used: {cause}")]
    Target {
        path: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// A folder of the data directory cannot be read.
    #[error("{path} cannot be read: {cause}")]
    Source {
        path: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// A row could not be written.
    #[error("a salvaged row could not be written: {cause}")]
    Write {
        /// The system's error.
        cause: std::io::Error,
    },
    /// The log cannot be read.
    #[error("the log cannot be read: {0}")]
    Log(LogError),
    /// The engine cannot be read any more.
    #[error("the stored rows cannot be read: {0}")]
    Engine(#[from] EngineError),
    /// The records of the engine cannot be read.
    #[error(transparent)]
    Records(#[from] CheckError),
}

/// Writes every readable row. The data directory is not changed.
pub fn salvage(options: &SalvageOptions, progress: &mut Progress) -> Result<Salvaged, SalvageError> {
    let folder = Folder::open(&options.from)?;
    let target = target::prepare(folder.path(), &options.to)?;
    let mut report = Report::default();
    let log = read_log(&folder, &mut report)?;
    let opened = sources::open(&folder, &mut report);
    target::check_space(&target, stored_bytes(&folder, opened.as_ref())?)?;
    let mut copy = match &opened {
        Some(_) => None,
        None => repaired(&folder, &target, &mut report),
    };
    let copied = copy.as_ref().and_then(RepairedCopy::open);
    let records = match opened.as_ref().or(copied) {
        Some(open) => records_of(&folder, open, &mut report)?,
        None => Records::default(),
    };
    let catalog = catalog_of(opened.as_ref().or(copied), log.as_ref(), &records, &mut report)?;
    let tables = catalog.tables(&mut |_, _| {});
    let log_rows = match &log {
        Some(log) => log_rows::collect(log, &records, &tables, &mut report)?,
        None => log_rows::LogRows::new(),
    };
    let wants_unknown = catalog.is_empty() || catalog.is_damaged || !report.is_clean();
    let mut places = Places::new(tables, wants_unknown);
    let mut rows = RowSalvage::new(&mut places, &target, log_rows, &mut report);
    progress.begin("Reading rows");
    if let Some(open) = opened.as_ref().or(copied) {
        rows.read_all(open, progress)?;
    }
    if rows.has_lost() && copy.is_none() {
        progress.begin("Reading files that the engine could not");
        copy = repaired(&folder, &target, rows.report);
    }
    let copied = copy.as_ref().and_then(RepairedCopy::open);
    if let (true, Some(open)) = (rows.has_lost() && opened.is_some(), copied) {
        rows.read_lost(open)?;
    }
    if let (true, Some(open)) = (rows.has_lost(), opened.as_ref().or(copied)) {
        rows.read_large_values(&folder.engine(), open)?;
    }
    rows.finish()?;
    let RowSalvage { mut writer, from_damaged, from_log, .. } = rows;
    places.describe(&mut writer).map_err(|cause| SalvageError::Write { cause })?;
    let salvaged = Salvaged::new(&places, &records, writer.rows, (from_damaged, from_log), report);
    salvaged.store(&target).map_err(|cause| SalvageError::Write { cause })?;
    Ok(salvaged)
}

/// The log, damaged or not. `None` if there is none.
fn read_log(folder: &Folder, report: &mut Report) -> Result<Option<ExaminedLog>, SalvageError> {
    let dir = folder.log();
    let failed = |cause| SalvageError::Source { path: dir.display().to_string(), cause };
    if !log::file::exists(&RealFiles, &dir).map_err(failed)? {
        report.add(DamageKind::Log, None, format!("there are no segments in {}", dir.display()));
        return Ok(None);
    }
    let log = ExaminedLog::read(&RealFiles, &dir).map_err(SalvageError::Log)?;
    for damage in &log.damages {
        match damage {
            LogError::Version { .. } => return Err(folder.newer(damage.to_string()).into()),
            _ => report.add(DamageKind::Log, None, damage.to_string()),
        }
    }
    Ok(Some(log))
}

/// The bytes of the stored rows, which the salvaged rows at least take.
fn stored_bytes(folder: &Folder, open: Option<&OpenEngine>) -> Result<u64, SalvageError> {
    let dir = folder.engine();
    let failed = |cause| SalvageError::Source { path: dir.display().to_string(), cause };
    let mut bytes = match open {
        Some(open) => {
            let files = open.engine.files()?.into_iter().filter(|file| file.space == Some(Space::Rows));
            files.map(|file| file.bytes).sum()
        }
        None => 0,
    };
    for path in large_value_files(&dir).map_err(failed)? {
        bytes += std::fs::metadata(&path).map_err(failed)?.len();
    }
    Ok(bytes)
}

fn repaired(folder: &Folder, target: &Path, report: &mut Report) -> Option<RepairedCopy> {
    match RepairedCopy::make(&folder.engine(), target) {
        Ok(copy) => Some(copy),
        Err(cause) => {
            report.add(
                DamageKind::File,
                None,
                format!("a repaired copy of the engine cannot be made: {cause}"),
            );
            None
        }
    }
}

fn records_of(folder: &Folder, open: &OpenEngine, report: &mut Report) -> Result<Records, SalvageError> {
    match read_records(open, report)? {
        (records, None) => Ok(records),
        (_, Some(cause)) => Err(folder.newer(cause).into()),
    }
}

/// The catalog of the engine, with the changes that only the log has.
fn catalog_of(
    open: Option<&OpenEngine>,
    log: Option<&ExaminedLog>,
    records: &Records,
    report: &mut Report,
) -> Result<CatalogRows, SalvageError> {
    let mut rows = CatalogRows::default();
    if let Some(open) = open {
        let own = cluster::StoredCatalog::own_table();
        let mut until = *own.as_bytes();
        until[15] = 1;
        walk(&open.engine, Space::Rows, (own.as_bytes(), Some(&until)), &mut |found| {
            rows.take(found, &open.rows)
        })?;
    }
    if let Some(log) = log {
        log_rows::apply_to_catalog(log, records, &mut rows, report)?;
    }
    Ok(rows)
}
