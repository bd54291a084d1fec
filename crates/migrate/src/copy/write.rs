//! Writes rows to the target, hard, many at a time. A row that it refuses is named, and the others are written.

use client::answer::FailureKind;

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
            _ if result.errors > 0 => put_singly(target, stop, table, batch)?,
            _ => {}
        }
    }
    Ok(())
}

/// Finds the refused rows: the others are written twice.
fn put_singly(
    target: &mut Line,
    stop: &Stop,
    table: &Table,
    rows: &[(Key, String)],
) -> Result<(), MigrateError> {
    for row in rows {
        let term = insert_term(table, std::slice::from_ref(row));
        let result = match write(target, stop, table, &[term]) {
            Err(error) if is_about_rows(&error) => {
                WriteResult { errors: 1, first_error: Some(error.to_string()) }
            }
            results => results?.into_iter().next().unwrap_or_default(),
        };
        note_refusal(table, &row.0, &result);
    }
    Ok(())
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
    use super::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, batches};
    use crate::key::Key;

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
