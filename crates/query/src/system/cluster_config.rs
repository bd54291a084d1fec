//! `rethinkdb.cluster_config`: settings of the whole cluster.

use datum::{Datum, Object};
use reql::EvalError;

use super::fields::{field, object, only};
use crate::context::Cx;
use crate::failure::admin_failed;
use crate::table::{Identifiers, RowEdit, SystemTable};

pub(super) struct ClusterConfig;

const WRONG: &str = "The row you're trying to put into `rethinkdb.cluster_config` has the wrong format. ";

impl SystemTable for ClusterConfig {
    fn name(&self) -> &'static str {
        "cluster_config"
    }

    fn rows(&self, cx: &Cx, _identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        #[allow(clippy::cast_precision_loss, reason = "seconds")]
        let seconds = cx.catalog().heartbeat_secs() as f64;
        Ok(vec![object([("id", "heartbeat".into()), ("heartbeat_timeout_secs", Datum::Number(seconds))])])
    }

    fn write(&self, cx: &Cx, edit: RowEdit<'_>) -> Result<(), EvalError> {
        match (edit.old, edit.new) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(EvalError::op_failed(
                "It's illegal to insert new rows into the `rethinkdb.cluster_config` system table.",
            )),
            (Some(_), None) => Err(EvalError::op_failed(
                "It's illegal to delete rows from the `rethinkdb.cluster_config` system table.",
            )),
            (Some(_), Some(new)) => {
                let seconds = seconds_of(new).map_err(|error| error.prefixed(WRONG))?;
                only(new, &["id", "heartbeat_timeout_secs"]).map_err(|error| error.prefixed(WRONG))?;
                cx.node().set_heartbeat(seconds).map_err(admin_failed)
            }
        }
    }
}

/// The heartbeat timeout that a row asks for, in whole seconds.
fn seconds_of(row: &Object) -> Result<u64, EvalError> {
    match field(row, "heartbeat_timeout_secs")? {
        Datum::Number(n) if (0.0..1e9).contains(&n) && n.fract() != 0.0 => {
            let shown = Datum::Number(n).pretty();
            let why = format!("In `heartbeat_timeout_secs`: Expected a whole number; got {shown}");
            Err(EvalError::op_failed(why))
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be a count")]
        Datum::Number(n) if (0.0..1e9).contains(&n) => Ok(n as u64),
        other => {
            let shown = other.pretty();
            let why = format!("In `heartbeat_timeout_secs`: Expected a number; got {shown}");
            Err(EvalError::op_failed(why))
        }
    }
}
