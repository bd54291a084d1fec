//! Running queries, which the system table `jobs` shows and stops.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use io::Nanos;
use parking_lot::Mutex;
use reql::{Cancel, EvalError, Term};
use uuid::Uuid;

use super::client::Client;
use super::feed_polling::FeedPolling;

/// The running queries of a node.
#[derive(Default)]
pub(crate) struct Jobs(Arc<Mutex<HashMap<Uuid, Job>>>);

/// One running query.
#[derive(Clone)]
pub(crate) struct Job {
    /// The client that sent it.
    pub client: Arc<Client>,
    pub query: Arc<Term>,
    pub started: Nanos,
    pub cancel: Arc<Cancel>,
    /// Its changefeeds, which may wait for a change when it is stopped.
    pub feeds: Arc<FeedPolling>,
    /// Set when it was stopped through the system table.
    pub killed: Arc<AtomicBool>,
}

/// Keeps a query in the list until it is dropped.
pub(crate) struct JobEntry {
    id: Uuid,
    killed: Arc<AtomicBool>,
    jobs: Weak<Mutex<HashMap<Uuid, Job>>>,
}

impl Jobs {
    /// Adds a query to the list.
    pub fn enter(&self, id: Uuid, job: Job) -> JobEntry {
        let killed = job.killed.clone();
        self.0.lock().insert(id, job);
        JobEntry { id, killed, jobs: Arc::downgrade(&self.0) }
    }

    /// The running queries.
    pub fn list(&self) -> Vec<(Uuid, Job)> {
        self.0.lock().iter().map(|(id, job)| (*id, job.clone())).collect()
    }

    /// The number of running queries.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Stops the query with this id. Returns whether there is one.
    pub fn stop(&self, id: Uuid) -> bool {
        let jobs = self.0.lock();
        let Some(job) = jobs.get(&id) else { return false };
        job.killed.store(true, Ordering::Relaxed);
        job.cancel.set();
        job.feeds.wake();
        true
    }
}

impl JobEntry {
    /// The error that the client gets: that the query was stopped, if it was, else `error`.
    pub fn explain(&self, error: EvalError) -> EvalError {
        if !self.killed.load(Ordering::Relaxed) {
            return error;
        }
        EvalError::op_indeterminate("Query terminated by the `rethinkdb.jobs` table.")
    }
}

impl Drop for JobEntry {
    fn drop(&mut self) {
        if let Some(jobs) = self.jobs.upgrade() {
            jobs.lock().remove(&self.id);
        }
    }
}
