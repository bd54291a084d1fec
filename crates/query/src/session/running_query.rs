//! A running query: its place in the list of jobs, and the measurement that may make it one of the slow queries.

use std::sync::Arc;
use std::time::Duration;

use datum::Text;
use io::Nanos;
use reql::{EvalError, Term};
use uuid::Uuid;

use crate::context::{Trace, trace};
use crate::service::{Client, JobEntry, Service, SlowQuery};

/// Longer queries are listed by their first term and their size.
const SHOWN_BYTES_MAX: usize = 16 << 10;

/// A query from its start until its result was delivered, or it failed.
pub(crate) struct RunningQuery {
    job: JobEntry,
    measured: Option<Measured>,
}

/// The measurement of a query.
pub(super) struct Measured {
    pub service: Arc<Service>,
    pub id: Uuid,
    pub client: Arc<Client>,
    pub term: Arc<Term>,
    /// The length of its text.
    pub source_bytes: usize,
    pub trace: Arc<Trace>,
    pub started: Nanos,
    /// What its cursor has taken so far, without the time between two batches. `None` if it has no cursor.
    pub of_cursor: Option<OfCursor>,
}

/// The work of a cursor.
#[derive(Clone, Copy, Default)]
pub(super) struct OfCursor {
    took: Duration,
    items: u64,
}

impl RunningQuery {
    /// Measures the query if `measured` is given.
    pub(super) fn new(job: JobEntry, measured: Option<Measured>) -> RunningQuery {
        RunningQuery { job, measured }
    }

    /// The error that the client gets: see [`JobEntry::explain`].
    pub fn explain(&self, error: EvalError) -> EvalError {
        self.job.explain(error)
    }

    /// The result is a cursor. Changefeeds are not measured.
    pub fn has_cursor(&mut self, is_feed: bool) {
        match &mut self.measured {
            Some(_) if is_feed => self.measured = None,
            Some(measured) => {
                let took = measured.now().since(measured.started);
                measured.of_cursor = Some(OfCursor { took, items: 0 });
            }
            None => {}
        }
    }

    /// Adds a batch of the cursor: when its reading began, and its items.
    pub fn read_batch(&mut self, began: Nanos, items: usize) {
        let Some(measured) = &mut self.measured else { return };
        let took = measured.now().since(began);
        if let Some(cursor) = &mut measured.of_cursor {
            cursor.took += took;
            cursor.items += items as u64;
        }
    }
}

impl Measured {
    fn now(&self) -> Nanos {
        self.service.node().clock().now()
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let took = self.of_cursor.map_or_else(|| self.now().since(self.started), |cursor| cursor.took);
        // A feed that failed has no cursor, and is none of them either.
        if !self.service.slow_queries.may_keep(took) || trace::has_feed(&self.term) {
            return;
        }
        let query = shown(&self.term, self.source_bytes);
        let answered = match self.of_cursor {
            Some(cursor) => trace::Answered { kind: "stream", items: cursor.items },
            None => trace::Answered { kind: "value", items: 1 },
        };
        self.service.slow_queries.add(SlowQuery {
            id: self.id,
            client: self.client.clone(),
            plan: self.trace.explanation(query.clone(), answered, took),
            query: Text::from(query),
            ended: self.service.node().clock().unix(),
            took,
        });
    }
}

/// The text of a query in the list.
fn shown(term: &Term, source_bytes: usize) -> String {
    if source_bytes <= SHOWN_BYTES_MAX {
        return reql::print::term(term);
    }
    let name = term.as_call().map_or_else(|| "datum".to_owned(), |call| call.op.name().to_lowercase());
    format!("{name} (a query of {source_bytes} bytes)")
}
