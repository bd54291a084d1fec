//! A thread that verifies the stored data while the server runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use engine::rocks::RocksEngine;
use inspect::online::OnlineCheck;
use io::task::{self, Thread};
use storage::CompressedEngine;

use crate::config::BackgroundCheck as Options;

/// The first check begins after this time, so that a start is not slowed down.
const FIRST_DELAY: Duration = Duration::from_secs(3600);
/// Bytes that are read at once.
const STEP_BYTES: u64 = 1 << 20;
/// After a failed read that is not about damage.
const RETRY_DELAY: Duration = Duration::from_secs(60);

/// Counters of the checks of a server since its start.
#[derive(Debug, Default)]
pub struct CheckCounters {
    /// Bytes that were verified.
    pub bytes: AtomicU64,
    /// Checks that were completed.
    pub completed: AtomicU64,
    /// Damaged pairs and blocks that they met, the same one once in each check.
    pub damages: AtomicU64,
}

/// The thread. Dropping it ends the thread.
pub struct BackgroundCheck {
    stop: Option<SyncSender<()>>,
    thread: Option<Thread>,
}

impl BackgroundCheck {
    /// Starts the thread. Fails if the system cannot start one.
    pub fn start(
        options: Options,
        engine: Arc<RocksEngine>,
        rows: Arc<CompressedEngine>,
        counters: Arc<CheckCounters>,
    ) -> std::io::Result<BackgroundCheck> {
        let (stop, stopped) = sync_channel(0);
        let run = move || {
            let mut delay = options.interval.min(FIRST_DELAY);
            while waits(&stopped, delay) {
                let check = OnlineCheck::new(engine.clone(), rows.clone());
                if !run_check(check, options, &counters, &stopped) {
                    return;
                }
                delay = options.interval;
            }
        };
        let thread = task::spawn("background-check", run)?;
        Ok(BackgroundCheck { stop: Some(stop), thread: Some(thread) })
    }
}

/// Waits; false if the thread is to end.
fn waits(stopped: &Receiver<()>, time: Duration) -> bool {
    stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
}

/// Verifies everything once; false if the thread is to end.
fn run_check(
    mut check: OnlineCheck,
    options: Options,
    counters: &CheckCounters,
    stopped: &Receiver<()>,
) -> bool {
    loop {
        let pause = match check.step(STEP_BYTES.min(options.bytes_per_second)) {
            Ok(verified) => {
                counters.bytes.fetch_add(verified.bytes, Relaxed);
                counters.damages.fetch_add(verified.damages.len() as u64, Relaxed);
                for damage in &verified.damages {
                    tracing::error!("the background check found damage: {damage}");
                }
                if verified.is_complete {
                    counters.completed.fetch_add(1, Relaxed);
                    return true;
                }
                Duration::from_secs_f64(verified.bytes as f64 / options.bytes_per_second as f64)
            }
            Err(cause) => {
                tracing::warn!("the background check cannot read stored data, retrying: {cause}");
                RETRY_DELAY
            }
        };
        if !waits(stopped, pause) {
            return false;
        }
    }
}

impl Drop for BackgroundCheck {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}
