//! `rekindle check`: verifies everything in a data directory.
//!
//! In this order: the files that name the directory ([`metadata`]), the log ([`log_check`]), the records about tables and
//! groups ([`records`]), the catalog, all rows ([`rows`]), all index entries ([`indexes`]), positions and counts
//! ([`groups`]), the history ([`history`]), and the engine's files ([`files`]).

mod files;
mod groups;
mod history;
mod indexes;
mod log_check;
mod metadata;
mod records;
mod row_check;
mod rows;
mod table_check;

use std::sync::Arc;

use engine::rocks::{EngineOptions, RocksEngine, Tolerance, missing_spaces};
use engine::{EngineError, Space};
use log::LogError;
use storage::{CompressedEngine, CompressionOptions};

pub(crate) use self::records::{Records, read as read_records};
pub(crate) use self::row_check::read_row;
use self::table_check::TableChecks;
use crate::catalog::{CatalogRows, Tables};
use crate::folder::{Folder, FolderError};
use crate::progress::Progress;
use crate::report::{DamageKind, Report};
use crate::walk::{Found, Range, walk};

/// Why a check could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The folder cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The log cannot be read.
    #[error("the log cannot be read: {0}")]
    Log(LogError),
    /// The engine cannot be read any more.
    #[error("the stored rows cannot be read: {0}")]
    Engine(#[from] EngineError),
    /// A file cannot be read.
    #[error("a file cannot be read: {0}")]
    Io(#[from] std::io::Error),
}

/// An engine that is read, and its rows decompressed.
pub(crate) struct OpenEngine {
    pub engine: Arc<RocksEngine>,
    pub rows: CompressedEngine,
}

impl OpenEngine {
    pub(crate) fn new(engine: RocksEngine) -> OpenEngine {
        let engine = Arc::new(engine);
        let rows = CompressedEngine::new(engine.clone(), CompressionOptions::default());
        OpenEngine { engine, rows }
    }

    /// The options with which a data directory is read.
    pub(crate) fn options() -> EngineOptions {
        EngineOptions { cache_bytes: 64 << 20, write_buffer_bytes: 8 << 20, ..EngineOptions::default() }
    }
}

/// Checks the data directory. Changes nothing in it.
pub fn check(folder: &Folder, progress: &mut Progress) -> Result<Report, CheckError> {
    let mut report = Report::default();
    let identity = metadata::check(folder, &mut report)?;
    progress.begin("Checking the log");
    let log = log_check::read(folder, &mut report)?;
    let Some(open) = open_engine(folder, &mut report)? else {
        return Ok(report);
    };
    progress.begin("Checking records and dictionaries");
    let records = records::check(folder, &open, &mut report)?;
    let tables = catalog(&open, &mut report)?;
    metadata::check_identity(identity, &tables, &mut report);
    let mut checks = TableChecks::new(&tables, &records, log.as_ref());
    progress.begin("Checking rows");
    rows::check(&open, &mut checks, &mut report, progress)?;
    progress.begin("Checking index entries");
    indexes::check(&open, &mut checks, &mut report, progress)?;
    checks.compare_counts(&mut report);
    if let Some(log) = &log {
        progress.begin("Checking log entries");
        groups::check(folder, log, &records, &tables, &mut report)?;
    }
    history::check(&open, &mut report, progress)?;
    progress.begin("Checking files");
    files::check(folder, &open, &mut report)?;
    report.notes.extend(checks.notes());
    Ok(report)
}

/// Opens the engine, with its damage if need be. `None` if it cannot be opened at all, which is reported.
fn open_engine(folder: &Folder, report: &mut Report) -> Result<Option<OpenEngine>, CheckError> {
    let dir = folder.engine();
    let in_engine = |cause: &EngineError| format!("the list of the engine's files cannot be read: {cause}");
    match missing_spaces(&dir) {
        Ok(missing) if missing.is_empty() => {}
        Ok(missing) => {
            let names = missing.iter().map(|space| format!("`{}`", space.name())).collect::<Vec<_>>();
            let what = format!(
                "the list of the engine's files has no space {}: its end is missing, or an earlier version of Rekindle \
                 wrote it; then start the server once",
                names.join(", ")
            );
            report.add(DamageKind::File, None, what);
            return Ok(None);
        }
        Err(cause) => {
            report.add(DamageKind::File, None, in_engine(&cause));
            return Ok(None);
        }
    }
    let options = OpenEngine::options();
    let cause = match RocksEngine::open_read_only(&dir, &options, Tolerance::None) {
        Ok(engine) => return Ok(Some(OpenEngine::new(engine))),
        Err(cause) => cause,
    };
    report.add(DamageKind::File, None, cause.to_string());
    match RocksEngine::open_read_only(&dir, &options, Tolerance::Damage) {
        Ok(engine) => Ok(Some(OpenEngine::new(engine))),
        Err(_) => Ok(None),
    }
}

fn catalog(open: &OpenEngine, report: &mut Report) -> Result<Tables, CheckError> {
    let mut rows = CatalogRows::default();
    let own = cluster::StoredCatalog::own_table();
    let mut until = *own.as_bytes();
    until[15] = 1;
    walk(&open.engine, Space::Rows, (own.as_bytes(), Some(&until)), &mut |found| {
        rows.take(found, &open.rows)
    })?;
    Ok(rows.tables(&mut |key, cause| report.add(DamageKind::Catalog, None, format!("row {key}: {cause}"))))
}

/// Reports a damaged or unreadable range of a space. Pairs are not reported.
fn report_range(
    found: Found<'_>,
    space: Space,
    name: &dyn Fn(Range<'_>) -> Option<String>,
    report: &mut Report,
) {
    let (range, cause, effect) = match found {
        Found::Damage { range, cause } => (range, cause, "has damage"),
        Found::Lost { range, cause } => (range, cause, "cannot be read"),
        Found::Pair { .. } | Found::Doubtful { .. } => return,
    };
    let table = name(range);
    let what = format!("the space `{}` {effect} {}: {cause}", space.name(), keys(range));
    report.add(DamageKind::File, table.as_deref(), what);
}

/// The keys of a range, in words.
pub(crate) fn keys(range: Range<'_>) -> String {
    let show = |key: &[u8]| match storage::row_place(key) {
        Some((_, key)) => key.to_string(),
        None => format!("{key:02x?}"),
    };
    match (range.after.map(show), range.before.map(show)) {
        (None, None) => "in all keys".to_owned(),
        (Some(after), None) => format!("after key {after}"),
        (None, Some(before)) => format!("before key {before}"),
        (Some(after), Some(before)) => format!("between the keys {after} and {before}"),
    }
}
