//! Threads for queries that work or wait: scans, joins, batches of a stream.
//!
//! A query keeps its thread until it has an answer, so there may be many; an idle one ends
//! after a while.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

/// Evaluation recurses with the depth of a query.
const STACK_BYTES: usize = 16 << 20;

/// More queries than this at once wait for a thread.
const THREADS_MAX: usize = 1024;

const IDLE: Duration = Duration::from_secs(20);

/// The threads. Dropping the pool lets running queries end and starts no new one.
pub struct QueryPool {
    runtime: Option<Runtime>,
    handle: Handle,
}

impl QueryPool {
    /// A pool without any thread yet.
    pub fn new() -> io::Result<QueryPool> {
        // Only the runtime's blocking threads are used; nothing ever drives its tasks.
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
