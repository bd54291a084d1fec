//! Errors of the node, converted to errors of queries.

use cluster::AdminError;
use datum::{KeyError, Text};
use reql::EvalError;
use shard::{IndexError, ReadError, WriteError};

use super::{StoredTable, TableRef};

/// `Cannot perform read: <why>`
pub(crate) fn read_failed(error: &ReadError) -> EvalError {
    EvalError::op_failed(format!("Cannot perform read: {error}"))
}

/// The error of a read by the index `name` of `table`.
pub(crate) fn index_failed(table: &StoredTable, name: &Text, error: IndexError) -> EvalError {
    match error {
        IndexError::Missing(_) => TableRef::Stored(table.clone()).unreadable_index(name),
        IndexError::NotReady(_) => {
            let (db, table) = (&table.handle.db.name, &table.handle.config.name);
            EvalError::op_failed(format!(
                "Index `{name}` on table `{db}.{table}` was accessed before its construction was finished."
            ))
            .frameless()
        }
        IndexError::Bound(error) => key_error(&error),
        IndexError::TooMany { most, value } => EvalError::resource(format!(
            "Too many rows (> {most}) with the same value for index `{name}`:\n{}",
            value.truncated()
        )),
        IndexError::Read(error) => read_failed(&error),
    }
}

/// `Cannot perform write: <why>`, definite or indeterminate.
pub(crate) fn write_failed(error: &WriteError) -> EvalError {
    let text = format!("Cannot perform write: {error}");
    if error.is_definite() { EvalError::op_failed(text) } else { EvalError::op_indeterminate(text) }
}

/// The error of an administrative change; its text is ReQL's already.
#[allow(clippy::needless_pass_by_value, reason = "used with map_err")]
pub(crate) fn admin_failed(error: AdminError) -> EvalError {
    let text = error.to_string();
    if error.is_indeterminate() { EvalError::op_indeterminate(text) } else { EvalError::op_failed(text) }
}

/// The error of a datum that cannot be a primary key.
pub(crate) fn key_error(error: &KeyError) -> EvalError {
    let text = error.to_string();
    if error.is_null() { EvalError::non_existence(text) } else { EvalError::logic(text) }
}
