//! `get`: the row under a primary key.

use reql::EvalError;

use crate::value::{Args, Row, Value};

/// `get`: the row, or null. It is read when it is needed.
pub(crate) fn get(mut args: Args<'_>) -> Result<Value, EvalError> {
    let table = args.table(0)?;
    let key = args.datum(1)?;
    Ok(Value::Row(Row::at(table, key)))
}
