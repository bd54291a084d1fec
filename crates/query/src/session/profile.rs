//! Profiles: the steps of a query and their durations.

use std::sync::Arc;

use datum::Datum;
use io::Nanos;
use reql::Term;

use super::query::Query;
use crate::context::{Trace, trace};

/// A profile that is being recorded.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    started: Nanos,
    what: String,
    trace: Arc<Trace>,
}

impl Profile {
    /// A profile that starts at `now`, if the query asks for one.
    pub fn of(query: &Query, now: Nanos) -> Option<Profile> {
        let profile = || Profile { started: now, what: String::new(), trace: Arc::default() };
        query.flag("profile").then(profile)
    }

    /// Uses `trace` as the record of the evaluation of `term`.
    pub fn follow(&mut self, term: &Term, trace: Arc<Trace>) {
        self.what = match term.as_call() {
            Some(call) => format!("Evaluating {}.", call.op.name().to_lowercase()),
            None => "Evaluating datum.".to_owned(),
        };
        self.trace = trace;
    }

    /// The list of tasks for the client.
    pub fn finish(self, now: Nanos) -> Datum {
        vec![trace::task(&self.what, now.since(self.started), self.trace.tasks())].into()
    }
}
