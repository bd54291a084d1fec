//! One row of a table as a value: `get`, `nth`, `min` and `max`. It is read when it is needed, so that a write reads it
//! only once, under its latch.

use datum::Datum;
use reql::EvalError;

use crate::context::Cx;
use crate::stream::row_reads;
use crate::table::TableRef;

/// A row that may or may not exist.
pub(crate) struct Row {
    pub table: TableRef,
    /// Its primary key as the query gave it.
    pub key: Datum,
    /// The result of reading it: an object or null.
    read: Option<Datum>,
}

impl Row {
    /// The row under `key`, not read yet. Reading it fails if no row can have this key.
    pub fn at(table: TableRef, key: Datum) -> Row {
        Row { table, key, read: None }
    }

    /// Fails if `row` lacks the primary key of `table`.
    pub fn of_selection(table: TableRef, row: Datum) -> Result<Row, EvalError> {
        let key = table.key_of(&row)?;
        Ok(Row { table, key, read: Some(row) })
    }

    /// The present row, or null.
    pub fn datum(&self, cx: &Cx) -> Result<Datum, EvalError> {
        match &self.read {
            Some(row) => Ok(row.clone()),
            None => row_reads::row(cx, &self.table, &self.key),
        }
    }

    /// The present row, or null.
    pub fn into_datum(self, cx: &Cx) -> Result<Datum, EvalError> {
        self.datum(cx)
    }
}
