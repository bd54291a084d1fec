//! `set_write_hook`, `get_write_hook`: a function of a table that changes or rejects each write.
//!
//! Source: docs/reql-spec.md section 12.

use std::time::{Duration, Instant};

use cluster::TableChange;
use datum::{Datum, ObjectBuilder, Text};
use reql::{Call, EvalError, FuncTerm, Op, Scope, StoredFunc, Term, purity};

use super::db_admin::special;
use super::sequence::{self, SequenceCall};
use crate::context::Cx;
use crate::edit::described_hook;
use crate::table::{Privilege, Resource, TableRef, access, admin_failed};
use crate::value::{Args, Slice, Value};

/// How long the number of rows must stay the same before a hook that is given as a binary takes effect, and the longest wait for
/// that.
const STABLE_ROWS_TIME: Duration = Duration::from_millis(500);
const STABLE_ROWS_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between two counts.
const COUNT_INTERVAL: Duration = Duration::from_millis(25);

/// `set_write_hook`: a function of (context, old row, new row), the bytes of one, or null.
pub(crate) fn set_write_hook(mut args: Args<'_>) -> Result<Value, EvalError> {
    let table = args.table(0)?;
    let mut is_moved = false;
    let hook = match args.take(1)? {
        Value::Datum(Datum::Null) => None,
        Value::Datum(Datum::Binary(bytes)) => {
            is_moved = true;
            Some(StoredFunc::of_hook_binary(&bytes)?)
        }
        other => {
            let closure = other.into_func(args.cx).map_err(|error| error.at(1))?;
            // The error is about the body of the function.
            check_deterministic(&closure.func).map_err(|error| error.at(1).at(1))?;
            let stored = StoredFunc::of_closure(&closure, args.cx.source.as_ref());
            Some(stored.map_err(|error| error.at(1))?)
        }
    };
    if let Some(hook) = &hook {
        check_deterministic(hook.func())?;
        if hook.func().params.len() != 3 {
            return Err(EvalError::logic("Write hook functions must expect 3 arguments."));
        }
    }
    let TableRef::Stored(stored) = &table else {
        return Err(special("set a write hook on the tables in it"));
    };
    access::check(args.cx, Privilege::Config, Resource::of_table(&table))?;
    if is_moved {
        await_stable_rows(args.cx, &table)?;
    }
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

/// Waits until the number of rows of `table` no longer changes. `rethinkdb-restore` sets a hook while it is still writing the last
/// rows of the table, which have passed the hook already.
fn await_stable_rows(cx: &Cx, table: &TableRef) -> Result<(), EvalError> {
    let (began, mut rows) = (Instant::now(), row_count(cx, table));
    let mut stable_since = began;
    while stable_since.elapsed() < STABLE_ROWS_TIME && began.elapsed() < STABLE_ROWS_TIMEOUT {
        cx.check_cancel()?;
        std::thread::sleep(COUNT_INTERVAL);
        let now = row_count(cx, table);
        if now != rows {
            (rows, stable_since) = (now, Instant::now());
        }
    }
    Ok(())
}

/// The number of rows; `None` if it cannot be read.
fn row_count(cx: &Cx, table: &TableRef) -> Option<Datum> {
    let call = Call::new(Op::Count, vec![Term::Datum(Datum::Null)], Vec::new());
    let first = Value::Table(Slice::whole(table.clone()));
    let count = sequence::apply(SequenceCall { cx, call: &call, scope: &Scope::empty(), first });
    count.and_then(|count| count.into_datum(cx)).ok()
}

fn check_deterministic(func: &FuncTerm) -> Result<(), EvalError> {
    if purity::is_storable(func) {
        return Ok(());
    }
    Err(EvalError::logic(
        "Could not prove function deterministic.  Write hook functions must be deterministic.",
    ))
}
