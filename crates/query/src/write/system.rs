//! Writes to system tables: the table carries out each row's change, or refuses it.

use datum::{Datum, Object, PrimaryKey, Text, cancel};
use reql::{ErrorClass, EvalError};

use super::planned::PlannedWrites;
use crate::context::Cx;
use crate::edit::{ReturnChanges, RowOutcome, RowReport, RowTarget};
use crate::remote::system_rows;
use crate::table::{RowEdit, SYSTEM_PRIMARY_KEY, SystemRef};

/// Writes the rows of `planned`; the reports are in its order. Fails if the caller may not do one of the changes.
pub(super) fn write(
    cx: &Cx,
    system: &SystemRef,
    show: ReturnChanges,
    planned: &PlannedWrites<'_>,
) -> Result<Vec<RowReport>, EvalError> {
    let (env, field) = (cx.env(), Text::from_static(SYSTEM_PRIMARY_KEY));
    let mut reports = Vec::with_capacity(planned.keys.len());
    let mut forbidden = None;
    for (i, key) in planned.keys.iter().enumerate() {
        let found = row_under(system, system_rows::rows(cx, system)?, key);
        let (own_key, old) = found.map_or((key.clone(), None), |(key, row)| (key, Some(row)));
        let target = RowTarget { field: &field, key: &own_key, hook: None };
        let mut report = (planned.edit)(i).decide(target, old.as_ref(), &env);
        cx.check_stopped()?;
        let _uncancellable = cancel::scope(None);
        let new = match &report.new {
            Datum::Object(row) => Some(row),
            _ => None,
        };
        let (id, identifiers) = (key.decode(), system.identifiers);
        let generated_key = (planned.generated)(i);
        let edit = RowEdit { old: old.as_ref(), new, generated_key, identifiers };
        let wrote = match report.outcome {
            RowOutcome::Failed(_) => Ok(()),
            RowOutcome::Skipped => system.table.write_none(cx, &id, identifiers),
            _ => system.table.write(cx, edit),
        };
        match wrote {
            // The other rows are still tried. Source: artificial_table.cc of RethinkDB.
            Err(error) if error.class() == ErrorClass::Permission => {
                forbidden.get_or_insert(error);
            }
            Err(error) => report = RowReport::failed(error, report.old),
            Ok(()) if !matches!(report.outcome, RowOutcome::Inserted | RowOutcome::Replaced) => {}
            // A row that sets nothing is not kept.
            Ok(()) if system.table.is_row_gone(cx, &id) => report = report.removed(),
            Ok(()) if !show.shows(&report) || report.new == Datum::Null => {}
            Ok(()) => show_as_written(cx, system, key, &mut report)?,
        }
        reports.push(report);
    }
    forbidden.map_or(Ok(reports), Err)
}

/// Updates the report of a row that was written to the row as the table has it now, with default values and the
/// server's spelling.
fn show_as_written(
    cx: &Cx,
    system: &SystemRef,
    key: &PrimaryKey,
    report: &mut RowReport,
) -> Result<(), EvalError> {
    // Another client may have removed it since.
    let rows = system.table.rows(cx, system.identifiers)?;
    if let Some((_, row)) = row_under(system, rows, key) {
        report.new = row.into();
    }
    Ok(())
}

/// The row of a system table under `key` in any spelling, and the key it has in the table.
fn row_under(system: &SystemRef, mut rows: Vec<Object>, key: &PrimaryKey) -> Option<(PrimaryKey, Object)> {
    let place = |key: &PrimaryKey| {
        let is_it = |id: Datum| PrimaryKey::encode(&id).is_ok_and(|id| id == *key);
        rows.iter().position(|row| row.get(SYSTEM_PRIMARY_KEY).is_some_and(is_it))
    };
    let normalized_key = || PrimaryKey::encode(&system.table.normalized_key(&key.decode())?).ok();
    let (key, i) = match place(key) {
        Some(i) => (key.clone(), i),
        None => {
            let key = normalized_key()?;
            let i = place(&key)?;
            (key, i)
        }
    };
    Some((key, rows.swap_remove(i)))
}
