//! All rows.

use cluster::StoredCatalog;
use datum::PrimaryKey;
use engine::Space;
use storage::{TableId, row_place};

use super::row_check::read_row;
use super::table_check::TableChecks;
use super::{CheckError, OpenEngine, report_range};
use crate::progress::Progress;
use crate::report::{DamageKind, Report};
use crate::walk::{Found, Range, walk};

/// Verifies every row, and adds up the index entries that must exist.
pub(super) fn check(
    open: &OpenEngine,
    checks: &mut TableChecks,
    report: &mut Report,
    progress: &mut Progress,
) -> Result<(), CheckError> {
    walk(&open.engine, Space::Rows, (&[], None), &mut |found| match found {
        Found::Pair { key, value } => {
            progress.step();
            pair(open, checks, report, (key, value), Trust::Whole);
        }
        Found::Doubtful { key, value } => pair(open, checks, report, (key, value), Trust::Doubtful),
        Found::Damage { range, .. } | Found::Lost { range, .. } => {
            mark_damaged(checks, range);
            report_range(found, Space::Rows, &|range| table_in(checks, range), report);
        }
    })?;
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    Whole,
    /// Its block is damaged.
    Doubtful,
}

fn pair(
    open: &OpenEngine,
    checks: &mut TableChecks,
    report: &mut Report,
    (key, value): (&[u8], &[u8]),
    trust: Trust,
) {
    let Some((table, primary)) = row_place(key) else {
        report.add(DamageKind::Row, None, format!("a row has the key {key:02x?}, which names no table"));
        return;
    };
    let Some(check) = checks.tables.get_mut(&table) else {
        checks.leftover_rows += 1;
        return;
    };
    match read_row(&open.rows, key, &primary, value, &check.primary_key) {
        Ok((_, object)) => {
            if !check.add_row(&primary, &object) {
                checks.leftover_rows += 1;
                return;
            }
            if table != StoredCatalog::own_table() {
                let totals = report.table(&check.name);
                totals.rows += 1;
                totals.bytes += (key.len() + value.len()) as u64;
            }
        }
        Err(cause) => {
            check.is_damaged = true;
            let place = if trust == Trust::Doubtful { " (in a damaged block)" } else { "" };
            report.add(DamageKind::Row, Some(&check.name), format!("{}{place}", named(&primary, &cause)));
        }
    }
}

/// The cause, with the key if it does not have it.
fn named(key: &PrimaryKey, cause: &str) -> String {
    let key = key.to_string();
    if cause.contains(&key) { cause.to_owned() } else { format!("row {key}: {cause}") }
}

/// The tables that have keys in the range are not counted.
fn mark_damaged(checks: &mut TableChecks, range: Range<'_>) {
    let table = |key: &[u8]| row_place(key).map(|(table, _)| table);
    let (first, last) = (range.after.and_then(table), range.before.and_then(table));
    for (id, check) in &mut checks.tables {
        let is_inside = first.is_none_or(|first| first <= *id) && last.is_none_or(|last| *id <= last);
        check.is_damaged |= is_inside;
    }
}

/// The name of the table at the beginning of a damaged range.
fn table_in(checks: &TableChecks, range: Range<'_>) -> Option<String> {
    let table = |key: &[u8]| row_place(key).map(|(table, _): (TableId, _)| table);
    let id = range.after.and_then(table).or_else(|| range.before.and_then(table))?;
    checks.tables.get(&id).map(|check| check.name.clone())
}
