//! `sync`: waits until everything written to a table is on disk.

use datum::{Datum, Text};
use reql::EvalError;

use crate::access::{self, Need, Place};
use crate::args::Args;
use crate::failure::write_failed;
use crate::table::TableRef;
use crate::value::Value;

/// `sync`: `{synced: 1}` once all earlier soft writes of the table are durable.
pub(crate) fn sync(mut args: Args<'_>) -> Result<Value, EvalError> {
    let table = args.table(0)?;
    access::check(args.cx, Need::Write, Place::of_table(&table))?;
    let TableRef::Stored(stored) = table else {
        return Err(EvalError::op_failed("Artificial tables don't support `sync()`."));
    };
    let tickets: Vec<_> = stored.handle.shards().iter().map(|shard| shard.sync()).collect();
    for ticket in tickets {
        ticket.wait().map_err(|error| write_failed(&error))?;
    }
    let object = [(Text::from_static("synced"), 1.into())].into_iter().collect();
    Ok(Value::Datum(Datum::Object(object)))
}
