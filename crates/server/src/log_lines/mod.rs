//! Writes the node's log messages to the terminal and to a file in the data directory.
//!
//! The terminal gets only the text; the file also gets time and level: `2026-01-02T03:04:05.000006 1.234567s notice:
//! Server ready, …`. Scripts wait for some of these lines, so their texts are an interface.

mod stamp;
mod writer;

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use query::{LogLevel, LogLine, RecentLog};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use writer::Writer;

/// How much of an existing log file is read into the table `logs`, in bytes.
const RECALLED_BYTES: u64 = 256 << 10;

/// Writes every message of the process to the terminal and the file. Clones share both.
#[derive(Clone)]
pub struct LogLines(Arc<Outputs>);

struct Outputs {
    started: Instant,
    file: OnceLock<Writer>,
    recent: RecentLog,
}

impl LogLines {
    /// Starts to write messages to the terminal. `REKINDLE_LOG=debug` also shows debug messages.
    #[must_use]
    pub fn start() -> LogLines {
        let lines = LogLines(Arc::new(Outputs::new()));
        let level = std::env::var("REKINDLE_LOG").ok().and_then(|level| level.parse().ok());
        let subscriber = tracing_subscriber::registry()
            .with(lines.clone().with_filter(level.unwrap_or(LevelFilter::INFO)));
        // Only the first subscriber of a process can be set; a test that starts two nodes keeps the first.
        drop(tracing::subscriber::set_global_default(subscriber));
        lines
    }

    /// From now on appends messages to the file at `path`, too. The last messages already in it are added to the system
    /// table.
    pub fn open_file(&self, path: &Path) -> io::Result<()> {
        recall(path, &self.0.recent)?;
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        self.0.file.set(Writer::start(file)?).map_err(|_| io::ErrorKind::AlreadyExists.into())
    }

    /// The last messages, for the system table `logs`.
    #[must_use]
    pub fn recent(&self) -> RecentLog {
        self.0.recent.clone()
    }

    fn write(&self, level: Level, message: &str) {
        // A closed terminal or a full disk must not stop the node.
        drop(write_terminal(level, message));
        let line = LogLine {
            at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            uptime: self.0.started.elapsed(),
            level: shown(level),
            message: message.into(),
        };
        if let Some(file) = self.0.file.get() {
            self.0.recent.set_file_error(file.write(stamp::line(&line)));
        }
        self.0.recent.add(line);
    }
}

impl Outputs {
    fn new() -> Outputs {
        Outputs { started: Instant::now(), file: OnceLock::new(), recent: RecentLog::default() }
    }
}

/// Adds the messages at the end of the file at `path` to `recent`. A missing file has none.
fn recall(path: &Path, recent: &RecentLog) -> io::Result<()> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(RECALLED_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(RECALLED_BYTES).read_to_end(&mut bytes)?;
    // Text that is not a line of ours (a truncated line, the second line of a message) is skipped.
    recent.prepend(String::from_utf8_lossy(&bytes).lines().filter_map(stamp::read));
    Ok(())
}

fn write_terminal(level: Level, message: &str) -> io::Result<()> {
    match level {
        Level::INFO => {
            let mut terminal = io::stdout().lock();
            writeln!(terminal, "{message}")?;
            terminal.flush()
        }
        _ => writeln!(io::stderr().lock(), "{}: {message}", shown(level).name()),
    }
}

fn shown(level: Level) -> LogLevel {
    match level {
        Level::ERROR => LogLevel::Error,
        Level::WARN => LogLevel::Warn,
        Level::INFO => LogLevel::Notice,
        _ => LogLevel::Debug,
    }
}

impl<S: Subscriber> Layer<S> for LogLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        self.write(*event.metadata().level(), &text.0);
    }
}

/// The message of an event, followed by its fields.
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
        let lines = LogLines(Arc::new(Outputs::new()));
        lines.open_file(&path).unwrap();
        lines.write(Level::INFO, "Server ready");
        lines.write(Level::WARN, "careful");
        let text = std::fs::read_to_string(&path).unwrap();
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.splitn(3, ' ').collect()).collect();
        assert_eq!(words[0][2], "notice: Server ready");
        assert_eq!(words[1][2], "warn: careful");
        assert!(words[0][0].contains('T') && words[0][1].ends_with('s'), "{text}");

        let again = LogLines(Arc::new(Outputs::new()));
        again.open_file(&path).unwrap();
        again.write(Level::ERROR, "broken");
        let (before, now) = (lines.recent().newest_first(), again.recent().newest_first());
        assert_eq!(now[1..], before, "what the file holds is remembered, to the microsecond");
        assert_eq!((now[0].level, now[0].message.as_ref()), (LogLevel::Error, "broken"));
    }
}
