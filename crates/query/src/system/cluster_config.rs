//! `rethinkdb.cluster_config` and `rethinkdb.current_issues`: settings of the whole cluster,
//! and what is wrong with it.

use datum::Object;
use reql::EvalError;

use super::fields::object;
use crate::context::Cx;
use crate::table::{Identifiers, SystemTable};

pub(super) struct ClusterConfig;
pub(super) struct CurrentIssues;

impl SystemTable for ClusterConfig {
    fn name(&self) -> &'static str {
        "cluster_config"
    }

    fn rows(&self, _cx: &Cx, _identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        Ok(vec![object([("id", "heartbeat".into()), ("heartbeat_timeout_secs", 10.into())])])
    }
}

impl SystemTable for CurrentIssues {
    fn name(&self) -> &'static str {
        "current_issues"
    }

    fn rows(&self, _cx: &Cx, _identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        Ok(Vec::new())
    }
}
