//! `rethinkdb.logs`: what the server logged. The server keeps its log in a file of its own; here
//! the table has no rows yet.

use datum::Object;
use reql::EvalError;

use crate::context::Cx;
use crate::table::{Identifiers, SystemTable};

pub(super) struct Logs;

impl SystemTable for Logs {
    fn name(&self) -> &'static str {
        "logs"
    }

    fn is_everywhere(&self) -> bool {
        true
    }

    fn rows(&self, _cx: &Cx, _identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        Ok(Vec::new())
    }
}
