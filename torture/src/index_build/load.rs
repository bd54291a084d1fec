//! Writers, each at its fixed rate, through restarts of the node.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

use anyhow::{Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::options::Options;
use super::pace::Pace;
use super::table::{self, TABLE};
use crate::harness::client::Client;

/// Rows of one insert while the table is filled.
const ROWS_PER_INSERT: u64 = 1000;
/// How long a writer waits before it reconnects.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(10);

/// The writers and their measurements.
pub(super) struct Load {
    port: AtomicU16,
    stopped: AtomicBool,
    acknowledged: AtomicU64,
    /// From the time when a write was due to its response.
    times: Mutex<Vec<Duration>>,
    rows: u64,
    writers: u64,
    rate: u64,
}

/// Stops the writers when it is dropped.
pub(super) struct Stop<'a>(&'a Load);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }
}

impl Load {
    pub(super) fn new(port: u16, options: &Options) -> Load {
        Load {
            port: AtomicU16::new(port),
            stopped: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            times: Mutex::default(),
            rows: options.rows,
            writers: options.writers,
            rate: options.rate,
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port.load(Ordering::Relaxed)
    }

    /// The node was restarted and listens on another port.
    pub(super) fn moved_to(&self, port: u16) {
        self.port.store(port, Ordering::Relaxed);
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Inserts rows `0..rows`.
    pub(super) fn fill(&self, rows: u64) -> Result<()> {
        let mut client = Client::connect(self.port())?;
        let mut random = StdRng::seed_from_u64(rows);
        for start in (0..rows).step_by(ROWS_PER_INSERT as usize) {
            let batch: Vec<String> =
                (start..rows.min(start + ROWS_PER_INSERT)).map(|key| table::row(key, &mut random)).collect();
            let answer = client.ask(&format!("[1,[56,[{TABLE},[2,[{}]]]]]", batch.join(",")))?;
            ensure!(answer["r"][0]["inserted"] == batch.len(), "rows were not inserted: {answer}");
        }
        Ok(())
    }

    pub(super) fn stop_at_the_end(&self) -> Stop<'_> {
        Stop(self)
    }

    pub(super) fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, seed: u64) {
        for writer in 0..self.writers {
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed ^ writer);
                while !self.stopped.load(Ordering::Relaxed) {
                    // The node may be down; a write without a response was not acknowledged.
                    let _ = self.write(&mut random);
                    thread::sleep(RECONNECT_INTERVAL);
                }
            });
        }
    }

    /// The times of the writes since the last call.
    pub(super) fn take_times(&self) -> Vec<Duration> {
        std::mem::take(&mut *self.times.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes until the connection breaks: one write in ten deletes a row, the others insert or replace one.
    fn write(&self, random: &mut StdRng) -> Result<()> {
        let mut client = Client::connect(self.port())?;
        let mut pace = Pace::new(self.rate);
        while !self.stopped.load(Ordering::Relaxed) {
            let due = pace.wait();
            let key = random.random_range(0..self.rows);
            let query = match random.random_ratio(1, 10) {
                true => format!("[1,[54,[[16,[{TABLE},{key}]]]]]"),
                false => {
                    format!("[1,[56,[{TABLE},{}],{{\"conflict\":\"replace\"}}]]", table::row(key, random))
                }
            };
            let answer = client.ask(&query)?;
            ensure!(answer["r"][0]["errors"] == 0, "a write was refused: {answer}");
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
            self.times.lock().unwrap_or_else(PoisonError::into_inner).push(due.elapsed());
        }
        Ok(())
    }
}
