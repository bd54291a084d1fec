//! Writes rows to the target, hard, many at a time. A row that it refuses is named, and the others are written.

use client::answer::FailureKind;

use crate::compare::{Difference, DifferenceKind, merge, rows_with_keys};
use crate::error::MigrateError;
use crate::key::Key;
use crate::queries::{self, begin_insert, end_insert, push_row};
use crate::server::{Line, Stop, WriteResult};
use crate::table::{RefusedRow, Table};

/// Rows of one insert.
const BATCH_ROWS_MAX: usize = 200;
/// Bytes of one insert, unless a single row has more.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Puts rows into the table, in place of those with the same keys. Fails when the target is lost.
///
/// A row that differs from the one in its place only in the zone of a time, or in the sign of a zero, counts as unchanged and stays: rows
/// that count so are read again, and deleted and written anew if they differ.
pub fn put_rows(
    target: &mut Line,
    stop: &Stop,
    table: &Table,
    rows: &[(Key, String)],
) -> Result<(), MigrateError> {
    let batches = batches(rows);
    let terms: Vec<String> = batches.iter().map(|batch| insert_term(table, batch)).collect();
    let results = match write(target, stop, table, &terms) {
        Err(error) if is_about_rows(&error) => return put_singly(target, stop, table, rows),
        results => results?,
    };
    for (batch, result) in batches.iter().zip(&results) {
        match batch {
            [(key, _)] => note_refusal(table, key, result),
            _ if result.errors > 0 => {
                put_singly(target, stop, table, batch)?;
                continue;
            }
            _ => {}
        }
        if result.unchanged > 0 {
            replace_different(target, stop, table, batch)?;
        }
    }
    Ok(())
}

/// Deletes the rows that are still others in the table, and writes them anew.
fn replace_different(
    target: &mut Line,
    stop: &Stop,
    table: &Table,
    rows: &[(Key, String)],
) -> Result<(), MigrateError> {
    let keys: Vec<Key> = rows.iter().map(|(key, _)| key.clone()).collect();
    let present = target.run(stop, |to| rows_with_keys(to, &table.facts, &keys))?;
    let different = different(rows, present);
    let keys: Vec<Key> = different.iter().map(|(key, _)| key.clone()).collect();
    delete_rows(target, stop, table, &keys)?;
    for row in &different {
        put_one(target, stop, table, row)?;
    }
    Ok(())
}

/// The rows in whose place others are.
fn different(rows: &[(Key, String)], mut present: Vec<(Key, String)>) -> Vec<(Key, String)> {
    let mut rows = rows.to_vec();
    rows.sort();
    present.sort();
    let differs = |difference: Difference| match difference.kind {
        DifferenceKind::Differs { source, .. } => Some((difference.key, source)),
        _ => None,
    };
    merge(rows, present).into_iter().filter_map(differs).collect()
}

/// Finds the refused rows: the others are written twice.
fn put_singly(
    target: &mut Line,
    stop: &Stop,
    table: &Table,
    rows: &[(Key, String)],
) -> Result<(), MigrateError> {
    for row in rows {
        if put_one(target, stop, table, row)?.unchanged > 0 {
            replace_different(target, stop, table, std::slice::from_ref(row))?;
        }
    }
    Ok(())
}

fn put_one(
    target: &mut Line,
    stop: &Stop,
    table: &Table,
    row: &(Key, String),
) -> Result<WriteResult, MigrateError> {
    let term = insert_term(table, std::slice::from_ref(row));
    let result = match write(target, stop, table, &[term]) {
        Err(error) if is_about_rows(&error) => {
            WriteResult { errors: 1, first_error: Some(error.to_string()), ..WriteResult::default() }
        }
        results => results?.into_iter().next().unwrap_or_default(),
    };
    note_refusal(table, &row.0, &result);
    Ok(result)
}

/// Whether the target cannot read the rows, whenever they are sent.
fn is_about_rows(error: &MigrateError) -> bool {
    const KINDS: [FailureKind; 4] = [
        FailureKind::QueryLogic,
        FailureKind::NonExistence,
        FailureKind::CompileError,
        FailureKind::ClientError,
    ];
    error.kind().is_some_and(|kind| KINDS.contains(&kind))
}

/// Deletes the rows with these keys; missing ones do no harm. Fails when the target is lost.
pub fn delete_rows(target: &mut Line, stop: &Stop, table: &Table, keys: &[Key]) -> Result<(), MigrateError> {
    let delete = |keys: &[Key]| queries::delete(&table.facts.name, keys, table.facts.hook);
    let terms: Vec<String> = keys.chunks(BATCH_ROWS_MAX).map(delete).collect();
    let results = write(target, stop, table, &terms)?;
    for (keys, result) in keys.chunks(BATCH_ROWS_MAX).zip(&results) {
        note_refusal(table, &keys[0], result);
    }
    Ok(())
}

fn write(
    target: &mut Line,
    stop: &Stop,
    table: &Table,
    terms: &[String],
) -> Result<Vec<WriteResult>, MigrateError> {
    let what = format!("writing {}", table.facts.name);
    match terms.is_empty() {
        true => Ok(Vec::new()),
        false => target.run(stop, |to| to.write(&what, terms)),
    }
}

fn insert_term(table: &Table, rows: &[(Key, String)]) -> String {
    let mut term = begin_insert(&table.facts.name);
    for (count, (_, row)) in rows.iter().enumerate() {
        push_row(row, count, &mut term);
    }
    end_insert(table.facts.hook, &mut term);
    term
}

fn note_refusal(table: &Table, key: &Key, result: &WriteResult) {
    if result.errors > 0 {
        let why = result.first_error.clone().unwrap_or_default();
        let why = why.lines().next().unwrap_or_default().to_owned();
        table.add_refused(RefusedRow { key: key.to_json(), why });
    }
}

/// Cuts rows into inserts.
fn batches(rows: &[(Key, String)]) -> Vec<&[(Key, String)]> {
    let (mut batches, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (i, (_, row)) in rows.iter().enumerate() {
        if i > start && (i - start >= BATCH_ROWS_MAX || bytes + row.len() > BATCH_BYTES_MAX) {
            batches.push(&rows[start..i]);
            (start, bytes) = (i, 0);
        }
        bytes += row.len();
    }
    if start < rows.len() {
        batches.push(&rows[start..]);
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, batches, different};
    use crate::key::Key;

    #[test]
    fn rows_that_only_look_unchanged_are_found() {
        let row = |n: usize, value: &str| {
            (Key::parse(&n.to_string()).unwrap(), format!(r#"{{"id":{n},"a":{value}}}"#))
        };
        let time = |zone: &str| format!(r#"{{"$reql_type$":"TIME","epoch_time":1,"timezone":"{zone}"}}"#);
        let rows = [row(4, "1.0"), row(1, "0"), row(2, &time("+01:00")), row(3, "5")];
        let present = vec![row(1, "-0.0"), row(2, &time("+00:00")), row(4, "1")];
        assert_eq!(different(&rows, present), [row(1, "0"), row(2, &time("+01:00"))]);
    }

    #[test]
    fn batches_are_bounded_and_complete() {
        let row = |n: usize, bytes: usize| (Key::parse(&n.to_string()).unwrap(), "x".repeat(bytes));
        let small: Vec<_> = (0..BATCH_ROWS_MAX * 2 + 1).map(|n| row(n, 1)).collect();
        let lens = |rows: &[(Key, String)]| batches(rows).iter().map(|batch| batch.len()).collect::<Vec<_>>();
        assert_eq!(lens(&small), [BATCH_ROWS_MAX, BATCH_ROWS_MAX, 1]);
        assert_eq!(lens(&[]), [0usize; 0]);
        let large = [row(0, 10), row(1, BATCH_BYTES_MAX * 2), row(2, 10), row(3, 10)];
        assert_eq!(lens(&large), [1, 1, 2]);
    }
}
