//! `set_write_hook`, `get_write_hook`: a function of a table that changes or rejects each write.
//!
//! Source: docs/reql-spec.md section 12.

use cluster::TableChange;
use datum::{Datum, ObjectBuilder, Text};
use reql::purity::{self, Determinism};
use reql::{EvalError, StoredFunc};

use super::db_admin::special;
use crate::edit::{HOOK_PREFIX, described_hook};
use crate::table::{Privilege, Resource, TableRef, access, admin_failed};
use crate::value::{Args, Value};

/// `set_write_hook`: a function of (context, old row, new row), the bytes of one, or null.
pub(crate) fn set_write_hook(mut args: Args<'_>) -> Result<Value, EvalError> {
    let table = args.table(0)?;
    let hook = match args.take(1)? {
        Value::Datum(Datum::Null) => None,
        Value::Datum(Datum::Binary(bytes)) => Some(of_bytes(&bytes)?),
        other => {
            let closure = other.into_func(args.cx).map_err(|error| error.at(1))?;
            // The error is about the body of the function.
            check_deterministic(purity::of_func(&closure.func)).map_err(|error| error.at(1).at(1))?;
            Some(StoredFunc::of_closure(&closure).map_err(|error| error.at(1))?)
        }
    };
    if let Some(hook) = &hook {
        check_deterministic(purity::of_func(hook.func()))?;
        if hook.func().params.len() != 3 {
            return Err(EvalError::logic("Write hook functions must expect 3 arguments."));
        }
    }
    let TableRef::Stored(stored) = &table else {
        return Err(special("set a write hook on the tables in it"));
    };
    access::check(args.cx, Privilege::Config, Resource::of_table(&table))?;
    let is_set = hook.is_some();
    let change = TableChange { write_hook: Some(hook), ..TableChange::default() };
    let (before, _) =
        args.cx.node().resharder().change_table(stored.handle.config.id, &change).map_err(admin_failed)?;
    let done = match (is_set, before.write_hook.is_some()) {
        (false, _) => "deleted",
        (true, true) => "replaced",
        (true, false) => "created",
    };
    let mut answer = ObjectBuilder::new();
    answer.insert(Text::from_static(done), 1.into());
    Ok(Value::Datum(Datum::Object(answer.build())))
}

/// `get_write_hook`: the hook as bytes and text, or null.
pub(crate) fn get_write_hook(mut args: Args<'_>) -> Result<Value, EvalError> {
    let table = args.table(0)?;
    let TableRef::Stored(stored) = &table else { return Ok(Value::Datum(Datum::Null)) };
    access::check(args.cx, Privilege::Config, Resource::of_table(&table))?;
    // The query may have read the catalog before it changed the table itself.
    let catalog = args.cx.catalog();
    let handle = catalog.table_by_id(stored.handle.config.id).unwrap_or(&stored.handle);
    Ok(Value::Datum(described_hook(&handle.config)))
}

fn of_bytes(bytes: &[u8]) -> Result<StoredFunc, EvalError> {
    StoredFunc::check_size(bytes)?;
    let text = bytes.strip_prefix(HOOK_PREFIX.as_bytes()).and_then(|text| std::str::from_utf8(text).ok());
    text.and_then(|text| StoredFunc::parse(text.into()).ok()).ok_or_else(|| {
        EvalError::logic(
            "Cannot create a write hook except from a reql_write_hook_function returned from \
             `get_write_hook`.",
        )
    })
}

fn check_deterministic(determinism: Determinism) -> Result<(), EvalError> {
    if determinism == Determinism::Always {
        return Ok(());
    }
    Err(EvalError::logic(
        "Could not prove function deterministic.  Write hook functions must be deterministic.",
    ))
}
