//! Keeps the figures of the last 24 hours, over restarts: a thread takes a sample every ten seconds, shows it in the system table
//! `_metrics` and appends it to a file in the data directory.

mod file;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use ::io::Clock;
use ::io::real::RealFiles;
use ::io::task::{self, Thread};
use query::{MetricsHistory, MetricsSample};

use crate::http::{Figures, Sources};
use file::HistoryFile;

/// A thread that samples the figures. Dropping it ends the thread.
pub struct MetricsRecorder {
    stop: Option<SyncSender<()>>,
    thread: Option<Thread>,
}

impl MetricsRecorder {
    /// Adds the samples of the file in `directory` to `history`, and starts the thread. A file that cannot be used is reported
    /// and then left alone: the figures are kept in memory only. Fails if the system cannot start a thread.
    pub fn start(
        history: MetricsHistory,
        directory: &Path,
        sources: Arc<Sources>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<MetricsRecorder> {
        let file = match HistoryFile::open(directory, Box::new(RealFiles)) {
            Ok((file, samples)) => {
                samples.into_iter().for_each(|sample| history.add(sample));
                Some(file)
            }
            Err(error) => {
                tracing::warn!(
                    "the history of metrics is kept in memory only, because its file failed: {error}"
                );
                None
            }
        };
        let (stop, stopped) = sync_channel(0);
        let run = move || {
            let mut recording =
                Recording { history, file, before: Figures::now(&sources), is_failing: false };
            let wait = || until_next_sample(clock.unix());
            while stopped.recv_timeout(wait()) == Err(RecvTimeoutError::Timeout) {
                recording.take(Figures::now(&sources), clock.unix().as_secs());
            }
        };
        let thread = task::spawn("metrics-history", run)?;
        Ok(MetricsRecorder { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for MetricsRecorder {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

/// The time from `now` until the next multiple of the interval.
fn until_next_sample(now: Duration) -> Duration {
    let interval = Duration::from_secs(MetricsHistory::INTERVAL_SECS);
    let into = Duration::from_secs(now.as_secs() % MetricsHistory::INTERVAL_SECS)
        + Duration::from_nanos(u64::from(now.subsec_nanos()));
    interval.saturating_sub(into)
}

struct Recording {
    history: MetricsHistory,
    file: Option<HistoryFile>,
    /// The figures at the last sample.
    before: Option<Figures>,
    /// Whether the last sample could not be written to the file.
    is_failing: bool,
}

impl Recording {
    fn take(&mut self, now: Option<Figures>, unix_secs: u64) {
        let before = std::mem::replace(&mut self.before, now);
        let (Some(before), Some(now)) = (before, &self.before) else { return };
        let interval = MetricsHistory::INTERVAL_SECS;
        let sample = MetricsSample { at: unix_secs / interval * interval, values: now.since(&before) };
        self.history.add(sample);
        let Some(file) = &mut self.file else { return };
        match (file.append(&sample), self.is_failing) {
            (Ok(()), _) => self.is_failing = false,
            (Err(error), false) => {
                tracing::warn!("cannot write the history of metrics, retrying: {error}");
                self.is_failing = true;
            }
            (Err(_), true) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_taken_at_multiples_of_the_interval() {
        for (now_ms, wait_ms) in [(0, 10_000), (1, 9_999), (9_999, 1), (10_000, 10_000), (25_500, 4_500)] {
            let wait = until_next_sample(Duration::from_millis(now_ms));
            assert_eq!(wait, Duration::from_millis(wait_ms), "{now_ms} ms");
        }
    }
}
