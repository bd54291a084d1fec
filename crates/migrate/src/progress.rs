//! The progress of a copy: rows, bytes and time left of each table. Pure but for the terminal.

use std::io::{IsTerminal, Write as _, stderr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use crate::table::Table;

/// Seconds between lines if standard error is no terminal.
const LINES_EVERY_SECONDS: u64 = 5;
/// Tables that are shown at once.
const TABLES_MAX: usize = 20;
const BAR_WIDTH: usize = 20;

/// A table at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    pub name: String,
    pub rows: u64,
    pub bytes: u64,
    /// The source's estimate.
    pub expected: u64,
    pub is_done: bool,
    /// Changes that came and are not in the target yet.
    pub lag: u64,
}

impl Snapshot {
    pub fn of(table: &Table) -> Snapshot {
        let gate = table.gate();
        Snapshot {
            name: table.facts.name.to_string(),
            rows: table.done.rows.load(Ordering::Relaxed),
            bytes: table.done.bytes.load(Ordering::Relaxed),
            expected: table.facts.rows_expected,
            is_done: gate.is_complete(),
            lag: gate.pending(),
        }
    }
}

/// A table's speed since the last look.
#[derive(Clone, PartialEq, Debug)]
pub struct Speed {
    pub rows_per_second: f64,
    pub bytes_per_second: f64,
    /// By the estimate, if rows come.
    pub seconds_left: Option<f64>,
}

/// The speed from one moment to another, `elapsed` later.
pub fn speed(before: &Snapshot, now: &Snapshot, elapsed: Duration) -> Speed {
    let seconds = elapsed.as_secs_f64().max(1e-3);
    let rows_per_second = now.rows.saturating_sub(before.rows) as f64 / seconds;
    let left = now.expected.saturating_sub(now.rows) as f64;
    Speed {
        rows_per_second,
        bytes_per_second: now.bytes.saturating_sub(before.bytes) as f64 / seconds,
        seconds_left: (rows_per_second > 0.0 && !now.is_done).then(|| left / rows_per_second),
    }
}

/// A line with a bar.
pub fn line(now: &Snapshot, speed: &Speed, follows: bool) -> String {
    let share = match (now.is_done, now.expected) {
        (true, _) => 1.0,
        (false, 0) => 0.0,
        (false, expected) => (now.rows as f64 / expected as f64).min(0.99),
    };
    let full = (share * BAR_WIDTH as f64) as usize;
    let bar = format!("{}{}", "#".repeat(full), "-".repeat(BAR_WIDTH - full));
    let mut line = format!("{} [{bar}] {:.0} %  {} rows", now.name, share * 100.0, now.rows);
    if !now.is_done {
        line += &format!("  {:.0} rows/s  {:.1} MB/s", speed.rows_per_second, speed.bytes_per_second / 1e6);
        if let Some(left) = speed.seconds_left {
            line += &format!("  {} left", duration(left));
        }
    }
    if follows {
        line += &format!("  lag {} changes", now.lag);
    }
    line
}

/// The same as one object.
pub fn as_json(now: &Snapshot, speed: &Speed) -> Value {
    json!({
        "table": now.name,
        "rows": now.rows,
        "bytes": now.bytes,
        "expected_rows": now.expected,
        "done": now.is_done,
        "rows_per_second": speed.rows_per_second,
        "bytes_per_second": speed.bytes_per_second,
        "seconds_left": speed.seconds_left,
        "lag": now.lag,
    })
}

fn duration(seconds: f64) -> String {
    let seconds = seconds.min(1e9) as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// Shows the tables in place on a terminal, or from time to time as lines.
pub struct Display {
    before: Vec<Snapshot>,
    in_place: bool,
    shown: usize,
    looks: u64,
    follows: bool,
}

impl Display {
    pub fn new(follows: bool) -> Display {
        Display { before: Vec::new(), in_place: stderr().is_terminal(), shown: 0, looks: 0, follows }
    }

    /// One look, a second after the last. Returns the objects for `--json`.
    pub fn look(&mut self, tables: &[Arc<Table>], elapsed: Duration, prints: bool) -> Vec<Value> {
        let now: Vec<Snapshot> = tables.iter().map(|table| Snapshot::of(table)).collect();
        let before = if self.before.is_empty() { &now } else { &self.before };
        let speeds: Vec<Speed> = before.iter().zip(&now).map(|(a, b)| speed(a, b, elapsed)).collect();
        if prints {
            let unfinished = now.iter().zip(&speeds).filter(|(now, _)| !now.is_done || self.follows);
            let lines: Vec<String> =
                unfinished.take(TABLES_MAX).map(|(now, speed)| line(now, speed, self.follows)).collect();
            self.show(&lines);
        }
        let objects = now.iter().zip(&speeds).map(|(now, speed)| as_json(now, speed)).collect();
        self.before = now;
        self.looks += 1;
        objects
    }

    fn show(&mut self, lines: &[String]) {
        let mut out = String::new();
        if self.in_place {
            if self.shown > 0 {
                out += &format!("\x1b[{}A", self.shown);
            }
            out += "\x1b[J";
            self.shown = lines.len();
        } else if self.looks % LINES_EVERY_SECONDS != LINES_EVERY_SECONDS - 1 {
            return;
        }
        lines.iter().for_each(|line| out += &format!("{line}\n"));
        // A closed terminal is no reason to stop copying.
        drop(stderr().write_all(out.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_speed_and_time_left() {
        let before = Snapshot { name: "a.b".to_owned(), rows: 100, expected: 1000, ..Snapshot::default() };
        let now = Snapshot { rows: 300, bytes: 4_000_000, lag: 7, ..before.clone() };
        let found = speed(&before, &now, Duration::from_secs(2));
        assert_eq!((found.rows_per_second, found.seconds_left), (100.0, Some(7.0)));
        let said = line(&now, &found, true);
        assert_eq!(
            said,
            "a.b [######--------------] 30 %  300 rows  100 rows/s  2.0 MB/s  7 s left  lag 7 changes"
        );
        let done = Snapshot { is_done: true, ..now };
        assert_eq!(line(&done, &found, false), "a.b [####################] 100 %  300 rows");
        assert_eq!(as_json(&done, &found)["rows"], 300);
    }

    #[test]
    fn estimates_that_are_wrong_do_no_harm() {
        let now = Snapshot { rows: 300, expected: 100, ..Snapshot::default() };
        let still = speed(&now, &now, Duration::ZERO);
        assert_eq!(still.seconds_left, None);
        assert!(line(&now, &still, false).contains("99 %"));
        assert_eq!([30.0, 90.0, 7300.0].map(duration), ["30 s", "1 min 30 s", "2 h 1 min"]);
    }
}
