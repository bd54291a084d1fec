//! The last log lines of this node, as the system table `logs` shows them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use datum::Text;
use parking_lot::Mutex;

/// Lines that are kept; older ones are in the log file only.
const LINES_MAX: usize = 4096;

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// For debugging.
    Debug,
    /// A normal event.
    Info,
    /// An event that operators look for.
    Notice,
    /// Something unexpected.
    Warn,
    /// A failure.
    Error,
}

impl LogLevel {
    /// The name that is shown. Source: docs/reql-spec.md section 14, `logs`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Notice => "notice",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        }
    }

    #[must_use]
    pub fn named(name: &str) -> Option<LogLevel> {
        use LogLevel::{Debug, Error, Info, Notice, Warn};
        [Debug, Info, Notice, Warn, Error].into_iter().find(|level| level.name() == name)
    }
}

/// A line of the server's log, as the system table `logs` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The time since 1970, in whole microseconds. No two lines have the same.
    pub at: Duration,
    /// How long the process had run, in whole microseconds.
    pub uptime: Duration,
    /// The severity.
    pub level: LogLevel,
    pub message: Text,
}

/// The last lines. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RecentLog(Arc<LogState>);

#[derive(Debug, Default)]
struct LogState {
    lines: Mutex<VecDeque<LogLine>>,
    // The error of the last write to the log file, if it failed.
    file_error: Mutex<Option<String>>,
}

impl RecentLog {
    /// Adds a line. Its time becomes a microsecond later than the last line's if it is not later already, because the
    /// time identifies a line.
    pub fn add(&self, line: LogLine) {
        add(&mut self.0.lines.lock(), line);
    }

    /// Adds earlier lines, the oldest first, before the present ones.
    pub fn prepend(&self, earlier: impl IntoIterator<Item = LogLine>) {
        let mut lines = self.0.lines.lock();
        let since = std::mem::take(&mut *lines);
        earlier.into_iter().chain(since).for_each(|line| add(&mut lines, line));
    }

    /// Records the error of the last write to the log file, or its success (`None`).
    pub fn set_file_error(&self, error: Option<String>) {
        *self.0.file_error.lock() = error;
    }

    /// The error of the last write to the log file, if it failed.
    #[must_use]
    pub fn file_error(&self) -> Option<String> {
        self.0.file_error.lock().clone()
    }

    #[must_use]
    pub fn newest_first(&self) -> Vec<LogLine> {
        self.0.lines.lock().iter().rev().cloned().collect()
    }
}

fn add(lines: &mut VecDeque<LogLine>, mut line: LogLine) {
    line.at = Duration::from_micros(micros(line.at));
    line.uptime = Duration::from_micros(micros(line.uptime));
    if let Some(last) = lines.back().filter(|last| last.at >= line.at) {
        line.at = last.at + Duration::from_micros(1);
    }
    if lines.len() == LINES_MAX {
        lines.pop_front();
    }
    lines.push_back(line);
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(micros: u64, message: &'static str) -> LogLine {
        let at = Duration::from_micros(micros);
        LogLine { at, uptime: at, level: LogLevel::Notice, message: Text::from_static(message) }
    }

    #[test]
    fn every_line_has_a_distinct_time() {
        let book = RecentLog::default();
        [line(5, "a"), line(5, "b"), line(3, "c"), line(9, "d")].into_iter().for_each(|line| book.add(line));
        let shown: Vec<(u128, String)> = book
            .newest_first()
            .into_iter()
            .map(|line| (line.at.as_micros(), line.message.to_string()))
            .collect();
        let expected = [(9, "d"), (7, "c"), (6, "b"), (5, "a")];
        assert_eq!(shown, expected.map(|(at, message)| (at, message.to_owned())));
    }

    #[test]
    fn a_file_error_lasts_until_a_line_is_written() {
        let book = RecentLog::default();
        book.clone().set_file_error(Some("no space left".to_owned()));
        assert_eq!(book.file_error().as_deref(), Some("no space left"));
        book.set_file_error(None);
        assert_eq!(book.file_error(), None);
    }

    #[test]
    fn the_oldest_lines_make_room() {
        let book = RecentLog::default();
        (0..LINES_MAX as u64 + 2).for_each(|micros| book.add(line(micros, "x")));
        let lines = book.newest_first();
        assert_eq!((lines.len(), lines.last().map(|line| line.at.as_micros())), (LINES_MAX, Some(2)));
    }
}
