//! Where the node's own messages go: the terminal, and a file in the data directory.
//!
//! The terminal gets what a person wants to read, the file the same with time and level:
//! `2026-01-02T03:04:05.000006 1.234567s notice: Server ready, …`. Scripts wait for some of these
//! lines; their words are an interface.

mod stamp;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// Sends every message of the process to its places. Clones share them.
#[derive(Clone)]
pub struct LogLines(Arc<Places>);

struct Places {
    started: Instant,
    file: OnceLock<Mutex<File>>,
}

impl LogLines {
    /// Begins to write messages to the terminal. `REKINDLE_LOG=debug` shows more of them.
    #[must_use]
    pub fn start() -> LogLines {
        let lines = LogLines(Arc::new(Places { started: Instant::now(), file: OnceLock::new() }));
        let level = std::env::var("REKINDLE_LOG").ok().and_then(|level| level.parse().ok());
        let subscriber = tracing_subscriber::registry()
            .with(lines.clone().with_filter(level.unwrap_or(LevelFilter::INFO)));
        // Only the first in a process can be set; a test that starts two nodes keeps the first.
        drop(tracing::subscriber::set_global_default(subscriber));
        lines
    }

    /// From now on messages also go to the end of the file at `path`.
    pub fn open_file(&self, path: &Path) -> io::Result<()> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        self.0.file.set(Mutex::new(file)).map_err(|_| io::ErrorKind::AlreadyExists.into())
    }

    fn write(&self, level: Level, message: &str) {
        // A terminal that is gone or a full disk must not stop the node.
        drop(write_terminal(level, message));
        if let Some(file) = self.0.file.get() {
            drop(self.write_file(&mut file.lock(), level, message));
        }
    }

    fn write_file(&self, file: &mut File, level: Level, message: &str) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let uptime = self.0.started.elapsed();
        let line = format!(
            "{} {}.{:06}s {}: {message}\n",
            stamp::Stamp(now),
            uptime.as_secs(),
            uptime.subsec_micros(),
            level_name(level)
        );
        file.write_all(line.as_bytes())
    }
}

fn write_terminal(level: Level, message: &str) -> io::Result<()> {
    match level {
        Level::INFO => {
            let mut terminal = io::stdout().lock();
            writeln!(terminal, "{message}")?;
            terminal.flush()
        }
        _ => writeln!(io::stderr().lock(), "{}: {message}", level_name(level)),
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "notice",
        _ => "debug",
    }
}

impl<S: Subscriber> Layer<S> for LogLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        self.write(*event.metadata().level(), &text.0);
    }
}

/// The message of an event and, behind it, its fields.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&match field.name() {
            "message" => format!("{value:?}"),
            name => format!(" {name}={value:?}"),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_gets_time_level_and_message() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log_file");
        let lines = LogLines(Arc::new(Places { started: Instant::now(), file: OnceLock::new() }));
        lines.open_file(&path).unwrap();
        lines.write(Level::INFO, "Server ready");
        lines.write(Level::WARN, "careful");
        let text = std::fs::read_to_string(path).unwrap();
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.splitn(3, ' ').collect()).collect();
        assert_eq!(words[0][2], "notice: Server ready");
        assert_eq!(words[1][2], "warn: careful");
        assert!(words[0][0].contains('T') && words[0][1].ends_with('s'), "{text}");
    }
}
