//! The rows that only the log has: changes after the position up to which the engine has applied it.

use std::collections::BTreeMap;

use bytes::Bytes;
use cluster::StoredCatalog;
use datum::PrimaryKey;
use io::real::RealFiles;
use log::file::ExaminedLog;
use log::{GroupId, Lsn};
use shard::LogReplay;
use storage::TableId;

use super::SalvageError;
use crate::catalog::{CatalogRows, Tables};
use crate::check::Records;
use crate::report::{DamageKind, Report};

/// The newest change of each row; `None` if it was deleted.
pub(super) type LogRows = BTreeMap<(TableId, PrimaryKey), Option<Bytes>>;

/// Applies the log's changes of the catalog.
pub(super) fn apply_to_catalog(
    log: &ExaminedLog,
    records: &Records,
    rows: &mut CatalogRows,
    report: &mut Report,
) -> Result<(), SalvageError> {
    changes(log, records, GroupId(0), report, &mut |key, row| rows.set(key, row))
}

/// The changes of all tables after the engine's positions.
pub(super) fn collect(
    log: &ExaminedLog,
    records: &Records,
    tables: &Tables,
    report: &mut Report,
) -> Result<LogRows, SalvageError> {
    let mut rows = LogRows::new();
    for group in log.groups_with_entries() {
        let Some(table) = tables.table_of(group).filter(|table| *table != StoredCatalog::own_table()) else {
            continue;
        };
        changes(log, records, group, report, &mut |key, row| drop(rows.insert((table, key), row)))?;
    }
    Ok(rows)
}

fn changes(
    log: &ExaminedLog,
    records: &Records,
    group: GroupId,
    report: &mut Report,
    each: &mut dyn FnMut(PrimaryKey, Option<Bytes>),
) -> Result<(), SalvageError> {
    let applied = records.applied.get(&group);
    let after = applied.map(|applied| applied.lsn).unwrap_or_default();
    let mut last = after;
    let mut replay = LogReplay::after(applied).or_else(|| LogReplay::after(None));
    // With a gap, it is unknown which entries depend on missing ones.
    let has_gap = !log.damages.is_empty();
    log.entries(&RealFiles, group, after, |lsn, entry| {
        last = lsn;
        let changes = match &mut replay {
            Some(replay) if !has_gap => replay.changes(lsn, entry),
            _ => LogReplay::all_changes(lsn, entry),
        };
        match changes {
            Ok(changes) => changes.into_iter().for_each(|change| each(change.key, change.row)),
            Err(cause) => report.add(DamageKind::Entry, None, format!("group {group}: {cause}")),
        }
    })
    .map_err(SalvageError::Log)?;
    if has_gap && !log.has_all(group, after, last) {
        report.add(DamageKind::Entry, None, missing(group, after, last));
    }
    Ok(())
}

fn missing(group: GroupId, after: Lsn, last: Lsn) -> String {
    format!(
        "group {group}: some log entries between {after} and {last} cannot be read; their rows may be older"
    )
}
