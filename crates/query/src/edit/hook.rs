//! Write hooks: a table's function that changes or rejects each write, after the write's own function.
//!
//! Source: docs/reql-spec.md section 12.

use cluster::TableConfig;
use datum::{Datum, ObjectBuilder, Text};
use reql::{ARRAY_LIMIT_DEFAULT, Env, EvalError, ResultKind, Scope, StoredFunc};

/// The row that `hook` makes of a write from `before` to `after`, in a table with this key field.
///
/// The hook does not see options of the query. It must not turn a deletion into a row or a row into a deletion.
pub(crate) fn apply(
    hook: &StoredFunc,
    field: &Text,
    before: &Datum,
    after: Datum,
    env: &Env<'_>,
) -> Result<Datum, EvalError> {
    let mut context = ObjectBuilder::new();
    context.insert(Text::from_static("primary_key"), key_of(field, before, &after)?);
    context.insert(Text::from_static("timestamp"), Datum::Time(env.now));
    let env = Env { array_limit: ARRAY_LIMIT_DEFAULT, globals: &[], open: None, ..*env };
    let is_deletion = matches!(after, Datum::Null);
    let values = [Datum::Object(context.build()), before.clone(), after];
    let answer = reql::closure(hook.func(), &Scope::empty(), ResultKind::Datum)
        .and_then(|hook| hook.call(&values, &env))
        .map_err(|error| error.prefixed("Error in write hook: "))?;
    match (is_deletion, &answer) {
        (true, Datum::Null) => Ok(answer),
        (true, _) => {
            Err(EvalError::op_failed("A write hook function must not turn a deletion into a replace/insert."))
        }
        (false, Datum::Null) => {
            Err(EvalError::op_failed("A write hook function must not turn a replace/insert into a deletion."))
        }
        (false, _) => Ok(answer),
    }
}

/// The key of the row to be written, else of the old one, else null.
fn key_of(field: &Text, before: &Datum, after: &Datum) -> Result<Datum, EvalError> {
    match (after, before) {
        (Datum::Object(row), _) | (Datum::Null, Datum::Object(row)) => {
            Ok(row.get(field).unwrap_or(Datum::Null))
        }
        (Datum::Null, _) => Ok(Datum::Null),
        (other, _) => Err(EvalError::type_error("OBJECT", other)),
    }
}

/// A table's hook as `get_write_hook` and `table_config` show it.
pub(crate) fn described_hook(table: &TableConfig) -> Datum {
    let Some(hook) = &table.write_hook else { return Datum::Null };
    let query = format!("setWriteHook({})", hook.source());
    let mut out = ObjectBuilder::new();
    out.insert(Text::from_static("function"), Datum::Binary(hook.hook_binary()));
    out.insert(Text::from_static("query"), query.into());
    Datum::Object(out.build())
}
