//! Threads for queries that compute or block: scans, joins, batches of a stream.
//!
//! A query occupies its thread until it is answered, so there may be many threads. An idle thread ends after a while.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

/// Evaluation recurses with the depth of a query.
const STACK_BYTES: usize = 16 << 20;

/// Further queries wait for a thread.
const THREADS_MAX: usize = 1024;

const IDLE: Duration = Duration::from_secs(20);

/// The thread pool. Dropping it lets running queries finish and starts no new ones.
pub struct QueryPool {
    runtime: Option<Runtime>,
    handle: Handle,
}

impl QueryPool {
    /// A pool without threads; they start on demand.
    pub fn new() -> io::Result<QueryPool> {
        // Only the runtime's blocking threads are used; its tasks are never driven.
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(THREADS_MAX)
            .thread_stack_size(STACK_BYTES)
            .thread_keep_alive(IDLE)
            .thread_name("query")
            .build()?;
        Ok(QueryPool { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Runs `job` as soon as a thread is free.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        drop(self.handle.spawn_blocking(job));
    }
}

impl Drop for QueryPool {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
