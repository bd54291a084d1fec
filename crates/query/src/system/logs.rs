//! `rethinkdb.logs`: the last log lines of each server.

use datum::{Datum, Object, Text, Time};
use reql::EvalError;

use super::fields::object;
use super::table_config::server_name;
use crate::context::Cx;
use crate::service::LogLine;
use crate::table::{Identifiers, RowEdit, SystemTable};

pub(super) struct Logs;

impl SystemTable for Logs {
    fn name(&self) -> &'static str {
        "logs"
    }

    fn is_per_server(&self) -> bool {
        true
    }

    /// The newest line comes first.
    fn is_ordered(&self) -> bool {
        true
    }

    fn rows(&self, cx: &Cx, identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let id = Text::from(cx.node().identity().server.to_string());
        let server = server_name(cx, identifiers);
        let lines = cx.service.facts.logs.newest_first();
        Ok(lines.into_iter().map(|line| row(line, &id, &server)).collect())
    }

    fn write(&self, _cx: &Cx, _edit: RowEdit<'_>) -> Result<(), EvalError> {
        Err(EvalError::op_failed("It's illegal to write to the `rethinkdb.logs` system table."))
    }
}

fn row(line: LogLine, id: &Text, server: &Text) -> Object {
    object([
        ("id", vec![Datum::String(moment(&line)), Datum::String(id.clone())].into()),
        ("level", line.level.name().into()),
        ("message", Datum::String(line.message)),
        ("server", Datum::String(server.clone())),
        ("timestamp", Datum::Time(Time::new(line.at.as_secs_f64(), 0))),
        ("uptime", Datum::Number(line.uptime.as_secs_f64())),
    ])
}

/// The time of a line in its key: UTC with nanoseconds and without zone.
fn moment(line: &LogLine) -> Text {
    let whole = Time::new(line.at.as_secs() as f64, 0);
    let seconds = reql::op::iso8601::print(&whole).unwrap_or_default();
    let seconds = seconds.split(['+', '.', 'Z']).next().unwrap_or_default();
    Text::from(format!("{seconds}.{:09}", line.at.subsec_nanos()))
}
