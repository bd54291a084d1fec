//! `rethinkdb.cluster_config`: settings of the whole cluster.

use cluster::AdminError;
use datum::{Datum, Object};
use reql::EvalError;

use super::fields::{field, object, only};
use crate::context::Cx;
use crate::table::{Identifiers, RowEdit, SystemTable, admin_failed};

pub(super) struct ClusterConfig;

/// Timeouts must be below this.
const SECONDS_END: f64 = 1e9;

impl SystemTable for ClusterConfig {
    fn name(&self) -> &'static str {
        "cluster_config"
    }

    fn is_of_catalog(&self) -> bool {
        true
    }

    fn rows(&self, cx: &Cx, _identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        #[allow(clippy::cast_precision_loss, reason = "seconds")]
        let seconds = cx.catalog().heartbeat_secs() as f64;
        Ok(vec![object([("id", "heartbeat".into()), ("heartbeat_timeout_secs", Datum::Number(seconds))])])
    }

    fn write(&self, cx: &Cx, edit: RowEdit<'_>) -> Result<(), EvalError> {
        match (edit.old, edit.new) {
            (_, None) => Err(EvalError::op_failed(
                "It's illegal to delete rows from the `rethinkdb.cluster_config` table.",
            )),
            (None, Some(_)) => Err(EvalError::op_failed(
                "It's illegal to insert new rows into the `rethinkdb.cluster_config` table.",
            )),
            (Some(_), Some(new)) => {
                let seconds = seconds_of(new)?;
                only(new, &["id", "heartbeat_timeout_secs"])?;
                cx.node().servers().set_heartbeat(seconds).map_err(admin_failed)
            }
        }
    }
}

/// The heartbeat timeout of a row, in whole seconds.
fn seconds_of(row: &Object) -> Result<u64, EvalError> {
    let wrong = |what: &str, value: &Datum| {
        let shown = value.pretty();
        Err(EvalError::op_failed(format!("Expected {what}; got {shown}")))
    };
    match field(row, "heartbeat_timeout_secs")? {
        Datum::Number(n) if n < 2.0 => Err(admin_failed(AdminError::HeartbeatTooShort)),
        Datum::Number(n) if n >= SECONDS_END => {
            wrong(&format!("a number below {SECONDS_END}"), &Datum::Number(n))
        }
        Datum::Number(n) if n.fract() != 0.0 => wrong("a whole number", &Datum::Number(n)),
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be a count")]
        Datum::Number(n) => Ok(n as u64),
        other => wrong("a number", &other),
    }
}
