//! `wait`: until tables can be used. On one node they always can.

use datum::{Datum, Text};
use reql::EvalError;

use crate::args::Args;
use crate::term::reconfigure::target_tables;
use crate::value::Value;

const STATES: [&str; 4] =
    ["ready_for_outdated_reads", "ready_for_reads", "ready_for_writes", "all_replicas_ready"];

/// `wait`: the number of tables that are ready.
pub(crate) fn wait(mut args: Args<'_>) -> Result<Value, EvalError> {
    if let Some(state) = args.optional_string("wait_for")?
        && !STATES.contains(&state.as_ref())
    {
        return Err(EvalError::logic(format!(
            "Unknown table readiness state: '{state}', must be one of 'ready_for_outdated_reads', \
                 'ready_for_reads', 'ready_for_writes', or 'all_replicas_ready'"
        )));
    }
    args.optional_number("timeout")?;
    let (tables, _) = target_tables(&mut args, "wait", "wait for the tables in it")?;
    let ready = Datum::Number(tables.len() as f64);
    let object = [(Text::from_static("ready"), ready)].into_iter().collect();
    Ok(Value::Datum(Datum::Object(object)))
}
