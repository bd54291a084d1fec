//! The last messages of this node, as the system table `logs` shows them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use datum::Text;
use parking_lot::Mutex;

/// Messages that are kept; older ones are in the log file only.
const LINES_MAX: usize = 4096;

/// How grave a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// For whoever looks for a fault.
    Debug,
    /// What happened.
    Info,
    /// What an operator waits for.
    Notice,
    /// What should not be so.
    Warn,
    /// What failed.
    Error,
}

impl LogLevel {
    /// The word shown. Source: docs/reql-spec.md section 14, `logs`.
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

    /// The level of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<LogLevel> {
        use LogLevel::{Debug, Error, Info, Notice, Warn};
        [Debug, Info, Notice, Warn, Error].into_iter().find(|level| level.name() == name)
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When, since 1970, to the microsecond. No two lines of a book have the same.
    pub at: Duration,
    /// How long the process had run, to the microsecond.
    pub uptime: Duration,
    /// How grave.
    pub level: LogLevel,
    /// What was said.
    pub message: Text,
}

/// The last messages. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RecentLog(Arc<LogState>);

#[derive(Debug, Default)]
struct LogState {
    lines: Mutex<VecDeque<LogLine>>,
    // Why the log file could not be written the last time.
    file_error: Mutex<Option<String>>,
}

impl RecentLog {
    /// Adds a message. One that is not later than the last is moved behind it by a microsecond,
    /// because the time is its identity.
    pub fn add(&self, line: LogLine) {
        add(&mut self.0.lines.lock(), line);
    }

    /// Adds messages of an earlier time, the oldest first, before those that are here.
    pub fn prepend(&self, earlier: impl IntoIterator<Item = LogLine>) {
        let mut lines = self.0.lines.lock();
        let since = std::mem::take(&mut *lines);
        earlier.into_iter().chain(since).for_each(|line| add(&mut lines, line));
    }

    /// Notes that the log file could not be written, and why, or that it could (`None`).
    pub fn set_file_error(&self, error: Option<String>) {
        *self.0.file_error.lock() = error;
    }

    /// Why the log file could not be written the last time, if it could not.
    #[must_use]
    pub fn file_error(&self) -> Option<String> {
        self.0.file_error.lock().clone()
    }

    /// The messages, the newest first.
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
    fn every_line_has_a_moment_of_its_own() {
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
    fn trouble_lasts_until_a_line_is_written() {
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
