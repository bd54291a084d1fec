//! Deletes old changes that were kept for changefeeds.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use engine::rocks::RocksEngine;
use io::task::{self, Thread};

/// The longest time between two deletions, and the shortest.
const DELETE_INTERVAL_MAX: Duration = Duration::from_secs(60);
const DELETE_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// A thread that deletes changes which are too old. Dropping it ends the thread.
pub struct HistoryAge {
    stop: Option<SyncSender<()>>,
    thread: Option<Thread>,
}

impl HistoryAge {
    /// Starts the thread: it deletes changes older than `age`. Fails if the system cannot start one.
    pub fn limit(engine: Arc<RocksEngine>, age: Duration) -> std::io::Result<HistoryAge> {
        let (stop, stopped) = sync_channel(0);
        let interval = (age / 4).clamp(DELETE_INTERVAL_MIN, DELETE_INTERVAL_MAX);
        let run = move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = engine.delete_old_history(age) {
                    tracing::error!("could not delete old changes kept for changefeeds, retrying: {error}");
                }
                if let Err(error) = engine.pause_failed_merges() {
                    tracing::error!("could not pause the merging of damaged files, retrying: {error}");
                }
            }
        };
        let thread = task::spawn("history-age", run)?;
        Ok(HistoryAge { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for HistoryAge {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}
