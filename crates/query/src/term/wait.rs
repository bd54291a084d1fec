//! `wait`: waits until tables are ready.

use std::time::{Duration, Instant};

use cluster::{Readiness, TableHandle, readiness};
use datum::{Datum, Text};
use reql::EvalError;

use super::reconfigure::{tables_of, target};
use crate::context::Cx;
use crate::value::{Args, Value};

/// A table that is not ready is checked again after a notification. The interval is a fallback that grows: not every
/// change on other servers causes a notification here.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(20);
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(500);

/// `wait`: returns the number of tables that are ready.
pub(crate) fn wait(mut args: Args<'_>) -> Result<Value, EvalError> {
    let value = target(&mut args, "wait")?;
    let wanted = match args.optional_string("wait_for")? {
        Some(state) => wanted(&state).map_err(|error| error.at("wait_for"))?,
        None => |ready: &Readiness| ready.all_replicas,
    };
    let timeout = args.optional_integer("timeout")?;
    let deadline = timeout.and_then(|seconds| {
        Instant::now().checked_add(Duration::try_from_secs_f64(seconds.max(0) as f64).ok()?)
    });
    let why = "the system tables in it are always available and don't need to be waited on";
    let tables = tables_of(args.cx, value, why)?;
    for table in &tables {
        until_ready(args.cx, table, wanted, deadline)?;
    }
    let ready = Datum::Number(tables.len() as f64);
    let object = [(Text::from_static("ready"), ready)].into_iter().collect();
    Ok(Value::Datum(Datum::Object(object)))
}

fn wanted(state: &str) -> Result<fn(&Readiness) -> bool, EvalError> {
    Ok(match state {
        "ready_for_outdated_reads" => |ready| ready.outdated_reads,
        "ready_for_reads" => |ready| ready.reads,
        "ready_for_writes" => |ready| ready.writes,
        "all_replicas_ready" => |ready| ready.all_replicas,
        _ => {
            return Err(EvalError::logic(format!(
                "Unknown table readiness state: '{state}', must be one of 'ready_for_outdated_reads', \
                 'ready_for_reads', 'ready_for_writes', or 'all_replicas_ready'"
            )));
        }
    })
}

/// Waits until the table, in its present configuration, is ready as `wanted`.
fn until_ready(
    cx: &Cx,
    table: &TableHandle,
    wanted: fn(&Readiness) -> bool,
    deadline: Option<Instant>,
) -> Result<(), EvalError> {
    let changes = cx.node().states().changes();
    let mut interval = CHECK_INTERVAL_MIN;
    loop {
        let seen = changes.seen();
        let catalog = cx.catalog();
        let Some(table) = catalog.table_by_id(table.config.id) else {
            let (db, name) = (&table.db.name, &table.config.name);
            return Err(EvalError::op_failed(format!("Table `{db}.{name}` does not exist.")));
        };
        if wanted(&readiness(&cx.node().states().table_state(table))) {
            return Ok(());
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(EvalError::op_failed("Timed out while waiting for tables."));
        }
        cx.check_cancel()?;
        changes.wait(seen, left.map_or(interval, |left| left.min(interval)));
        interval = (interval * 2).min(CHECK_INTERVAL_MAX);
    }
}
