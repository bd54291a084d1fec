//! The terminal output: a progress line during a run, a table at its end.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stderr};

use crate::result::{Figure, Latency, Point, RunResult};

/// Seconds between lines if standard error is not a terminal.
const LINE_EVERY_SECONDS: i64 = 5;

/// Prints a line about every second of a run to standard error.
pub struct ProgressLine {
    quiet: bool,
    in_place: bool,
    goal: Option<Goal>,
    done: u64,
}

/// The goal of a run.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// The length of its measured part.
    Seconds(f64),
    Operations(u64),
}

impl ProgressLine {
    /// A progress line relative to `goal`.
    pub fn new(quiet: bool, goal: Option<Goal>) -> Self {
        ProgressLine { quiet, in_place: stderr().is_terminal(), goal, done: 0 }
    }

    pub fn show(&mut self, point: &Point) {
        if point.second >= 0 {
            self.done += point.ok + point.failed;
        }
        if self.quiet || (!self.in_place && point.second % LINE_EVERY_SECONDS != 0) {
            return;
        }
        let line = self.line(point);
        // A closed terminal is no reason to stop measuring.
        let _ = match self.in_place {
            true => write!(stderr(), "\r\x1b[2K{line}"),
            false => writeln!(stderr(), "{line}"),
        };
    }

    /// Clears the line.
    pub fn end(&self) {
        if !self.quiet && self.in_place {
            let _ = write!(stderr(), "\r\x1b[2K");
        }
    }

    fn line(&self, point: &Point) -> String {
        let when = match (point.second < 0, self.goal) {
            (true, _) => format!("warm-up {:>3} s", -point.second),
            (false, Some(Goal::Seconds(all))) => format!("{:>3} of {all:.0} s", point.second + 1),
            (false, Some(Goal::Operations(all))) => {
                format!("{:>3} s, {:.0} %", point.second + 1, self.done as f64 / all as f64 * 100.0)
            }
            (false, None) => format!("{:>3} s", point.second + 1),
        };
        let mut line = format!("{when}  {} ops/s", thousands(point.ok));
        for operation in &point.operations {
            let p99 = operation.intended_p99_us.unwrap_or(operation.p99_us);
            let _ = write!(line, "  {} p99 {}", operation.name, micros(p99));
        }
        if let Some(waiting) = point.waiting.filter(|n| *n > 0) {
            let _ = write!(line, "  {} waiting", thousands(waiting));
        }
        if point.failed > 0 {
            let _ = write!(line, "  {} failed", thousands(point.failed));
        }
        if let Some(share) = point.server_cpu_share {
            let _ = write!(line, "  server {:.0} %", share * 100.0);
        }
        line
    }
}

/// Formats the result of a run as text.
pub fn summary(result: &RunResult) -> String {
    let mut out = String::new();
    let mut say = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    say(headline(result));
    say(String::new());
    say(latency_row(["", "ok", "failed", "per s", "p50", "p90", "p95", "p99", "p99.9", "max"]));
    for operation in &result.operations {
        let counts = [operation.ok, operation.failed, operation.per_second as u64];
        say(latencies(&operation.name, counts.map(thousands), &operation.service));
        if let Some(intended) = &operation.intended {
            say(latencies("  intended", Default::default(), intended));
        }
    }
    say(String::new());
    say(format!("seed        {}", result.seed));
    say(format!("throughput  {}", throughput(result)));
    result.runs.iter().for_each(|run| say(format!("run         {:.0} ms", run.ms)));
    servers(result).into_iter().for_each(&mut say);
    say(client(result));
    if let Some(log) = &result.log {
        say(format!(
            "log         {} appends, {} fsyncs, {} acknowledged writes, {} per fsync",
            thousands(log.appends_after.saturating_sub(log.appends_before)),
            thousands(log.fsyncs_after.saturating_sub(log.fsyncs_before)),
            thousands(log.acknowledged_writes),
            log.acknowledged_writes_per_fsync.map_or("-".to_owned(), |n| format!("{n:.1}")),
        ));
    }
    result.figures.iter().for_each(|figure| say(figure_line(figure)));
    for check in &result.checks {
        let verdict = if check.ok { "ok" } else { "WRONG" };
        say(format!("check       {}: {} ({}): {verdict}", check.name, check.found, check.source));
    }
    for error in &result.errors {
        say(format!(
            "error       {} {} {}: {}",
            thousands(error.count),
            error.operation,
            error.kind,
            error.first_message
        ));
    }
    result.notes.iter().for_each(|note| say(format!("note        {note}")));
    result.alarms.iter().for_each(|a| say(format!("ALARM       {}: {}", a.kind, a.message)));
    out
}

fn figure_line(figure: &Figure) -> String {
    let with_unit = |value: f64| format!("{value:.2} {}", figure.unit).trim_end().to_owned();
    let value = figure.value.map_or("unknown".to_owned(), with_unit);
    let bar = figure.bar.map_or(String::new(), |bar| format!(", at most {}", with_unit(bar)));
    let verdict = match figure.ok {
        None => "",
        Some(true) => ": held",
        Some(false) => ": MISSED",
    };
    format!("figure      {}: {value}{bar}{verdict}", figure.name)
}

fn headline(result: &RunResult) -> String {
    let against = result.versions.server.as_ref().map(|s| format!(" against {s}"));
    let pacing = &result.pacing;
    let how = match pacing.target_per_second {
        Some(rate) => format!("open loop at {rate:.0}/s"),
        None => "closed loop".to_owned(),
    };
    format!(
        "{}{}: {} connections x {}, {how}, {:.1} s",
        result.name,
        against.unwrap_or_default(),
        pacing.connections,
        pacing.pipeline,
        result.time.measured_seconds
    )
}

fn throughput(result: &RunResult) -> String {
    let mut text = format!("{} ops/s", thousands(result.throughput.operations_per_second.round() as u64));
    for unit in &result.throughput.units {
        let _ = match unit.name.as_str() {
            "bytes" => write!(text, ", {:.1} MB/s", unit.per_second / 1e6),
            name => write!(text, ", {} {name}/s", thousands(unit.per_second.round() as u64)),
        };
    }
    text
}

fn servers(result: &RunResult) -> Vec<String> {
    let cost = result.cost.server_cpu_us_per_operation;
    let mut lines = Vec::new();
    if let Some(cost) = cost {
        lines.push(format!("server CPU  {cost:.2} us per operation"));
    }
    if let Some(documents) = result.cost.documents_per_server_cpu_second.filter(|_| result.kind != "ycsb-run")
    {
        lines.push(format!("server CPU  {} documents per second of it", thousands(documents as u64)));
    }
    for operation in &result.operations {
        if let Some(cost) = operation.server_cpu_us_per_operation {
            lines.push(format!("server CPU  {cost:.2} us per {}", operation.name));
        }
    }
    for server in &result.servers {
        let megabytes = |bytes: Option<u64>| {
            bytes.map_or("?".to_owned(), |bytes| format!("{:.0} MB", bytes as f64 / 1e6))
        };
        lines.push(format!(
            "server      {} ({}): {} s CPU{}, peak memory {}, written {}",
            server.address,
            server.source,
            server.cpu_seconds.map_or("?".to_owned(), |s| format!("{s:.2}")),
            server.cpu_share.map_or(String::new(), |s| format!(" ({:.0} % of its cores)", s * 100.0)),
            megabytes(server.peak_memory_bytes),
            megabytes(server.written_bytes),
        ));
    }
    lines
}

fn client(result: &RunResult) -> String {
    format!(
        "client      {:.2} us CPU per operation, busiest of {} threads {:.0} % of a core{}",
        result.cost.client_cpu_us_per_operation.unwrap_or(0.0),
        result.client.threads,
        result.client.busiest_thread_share * 100.0,
        result.echo.as_ref().map_or(String::new(), |echo| format!(
            ", echo ceiling {} ops/s",
            thousands(echo.operations_per_second as u64)
        ))
    )
}

fn latencies(name: &str, counts: [String; 3], latency: &Latency) -> String {
    let at = |value: Option<f64>| value.map_or("-".to_owned(), micros);
    let percentiles = [
        at(latency.p50_us),
        at(latency.p90_us),
        at(latency.p95_us),
        at(latency.p99_us),
        at(latency.p999_us),
        at(latency.max_us),
    ];
    let [ok, failed, rate] = &counts;
    let [p50, p90, p95, p99, p999, max] = &percentiles;
    latency_row([name, ok, failed, rate, p50, p90, p95, p99, p999, max])
}

fn latency_row(cells: [&str; 10]) -> String {
    let mut row = format!("{:<18}{:>12}{:>8}{:>11}", cells[0], cells[1], cells[2], cells[3]);
    cells[4..].iter().for_each(|cell| row.push_str(&format!("{cell:>10}")));
    row.trim_end().to_owned()
}

/// Microseconds in a readable unit.
pub fn micros(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0} us"),
        us if us < 100_000.0 => format!("{:.2} ms", us / 1e3),
        us if us < 1_000_000.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// `1234567` as `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{micros, thousands};

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [12.3, 1_234.0, 123_456.0, 2_500_000.0].map(micros),
            ["12 us", "1.23 ms", "123 ms", "2.50 s"]
        );
    }
}
