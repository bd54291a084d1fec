//! Writes to system tables: what a row becomes is handed to its table, which carries it out or refuses.

use datum::{Datum, Object, PrimaryKey, Text, cancel};
use reql::{ErrorClass, EvalError};

use super::planned::PlannedWrites;
use crate::context::Cx;
use crate::edit::{ReturnChanges, RowOutcome, RowReport, RowTarget};
use crate::remote::system_rows;
use crate::table::{RowEdit, SYSTEM_PRIMARY_KEY, SystemRef};

/// Writes the rows of `planned`; the reports are in its order. Fails if whoever asks may not do what one of them asks for.
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
        cx.unless_stopped()?;
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
            // Nothing may be left of what was put.
            Ok(()) if system.table.is_row_gone(cx, &id) => report = report.removed(),
            Ok(()) if !show.shows(&report) || report.new == Datum::Null => {}
            Ok(()) => show_as_written(cx, system, key, &mut report)?,
        }
        reports.push(report);
    }
    forbidden.map_or(Ok(reports), Err)
}

/// Makes the report of a row that was written show it as the table has it now: with what was left to the
/// server, and as the server spells it.
fn show_as_written(
    cx: &Cx,
    system: &SystemRef,
    key: &PrimaryKey,
    report: &mut RowReport,
) -> Result<(), EvalError> {
    // Somebody else may have removed it since.
    let rows = system.table.rows(cx, system.identifiers)?;
    if let Some((_, row)) = row_under(system, rows, key) {
        report.new = row.into();
    }
    Ok(())
}

/// The row of a system table under `key`, however it is spelt, and the key it has itself.
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
