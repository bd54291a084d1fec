//! The terminal output of a sweep.

use std::fmt::Write as _;

use super::document::{Point, Series, SweepResult};
use super::summarize::REPORT;
use super::usl::Fit;
use crate::published;
use crate::terminal::{micros, thousands};

pub fn show(sweep: &SweepResult) -> String {
    let mut out = String::new();
    let version = sweep.target.version.as_deref().unwrap_or("unknown");
    let _ = writeln!(out, "Sweep over cluster sizes, server {version}, {}", quota(sweep));
    for series in &sweep.series {
        let lines: Vec<_> = std::iter::once(words(&HEAD)).chain(series.points.iter().map(row)).collect();
        let _ =
            write!(out, "\n{} ({}{})\n{}", series.name, series.unit, sizes(sweep, series), columns(&lines));
        let _ = writeln!(out, "law         {}", law(&series.fit));
        let _ = writeln!(out, "  published {}", law(&series.published_fit));
    }
    latencies(&mut out, &sweep.series);
    if !sweep.bars.is_empty() {
        out.push('\n');
    }
    for bar in &sweep.bars {
        let verdict = if bar.ok { "met" } else { "MISSED" };
        let published = bar.published.map_or(String::new(), |value| format!(", published {value:.1}"));
        let _ = writeln!(
            out,
            "bar         {}: {:.2}, {} {}{published}: {verdict}",
            bar.name, bar.found, bar.relation, bar.wanted
        );
    }
    for note in &sweep.notes {
        let _ = writeln!(out, "note        {note}");
    }
    for alarm in &sweep.alarms {
        let _ = writeln!(out, "ALARM       {}: {}", alarm.kind, alarm.message);
    }
    out
}

const HEAD: [&str; 12] = [
    "nodes",
    "per second",
    "rounds",
    "speed-up",
    "effic.",
    "published",
    "effic.",
    "CPU/op",
    "disk/op",
    "links/op",
    "client",
    "others",
];

fn row(point: &Point) -> Vec<String> {
    let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    let share = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{:.0} %", value * 100.0));
    let bytes = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0} B"));
    let published = point.published.as_ref();
    vec![
        point.nodes.to_string(),
        thousands(point.per_second.round() as u64),
        spread(point.rounds.iter().flatten().copied()),
        ratio(point.speed_up),
        ratio(point.efficiency),
        ratio(published.and_then(|p| p.speed_up)),
        ratio(published.and_then(|p| p.efficiency)),
        point.server_cpu_us_per_operation.map_or("-".to_owned(), micros),
        bytes(point.written_bytes_per_operation),
        bytes(point.link_bytes_per_operation),
        share(Some(point.client_busiest_thread_share)),
        share(point.others_core_share),
    ]
}

/// The slowest and the fastest of several rounds.
fn spread(rounds: impl Iterator<Item = f64> + Clone) -> String {
    let whole = |rate: f64| thousands(rate.round() as u64);
    match (rounds.clone().reduce(f64::min), rounds.clone().reduce(f64::max)) {
        (Some(slowest), Some(fastest)) if rounds.count() > 1 => {
            format!("{} to {}", whole(slowest), whole(fastest))
        }
        _ => "-".to_owned(),
    }
}

/// Formats rows of cells, the first aligned to the left and the others to the right. Each column is as wide as its
/// widest cell, so that cells never touch.
fn columns(lines: &[Vec<String>]) -> String {
    let width_of =
        |nth: usize| lines.iter().filter_map(|line| line.get(nth)).map(|cell| cell.chars().count()).max();
    let mut out = String::new();
    for line in lines {
        for (nth, cell) in line.iter().enumerate() {
            let width = width_of(nth).unwrap_or(0);
            let _ = match nth {
                0 => write!(out, "{cell:<width$}"),
                _ => write!(out, "  {cell:>width$}"),
            };
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

fn words(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn latencies(out: &mut String, series: &[Series]) {
    let mut lines = vec![words(&["latency, closed loop", "p50", "p90", "p95", "p99", "p99.9", "max"])];
    for one in series {
        for point in &one.points {
            for latency in &point.latency {
                let at = |value: Option<f64>| value.map_or("-".to_owned(), micros);
                let all = &latency.service;
                let values =
                    [all.p50_us, all.p90_us, all.p95_us, all.p99_us, all.p999_us, all.max_us].map(at);
                let name = format!("{} {} at {}", one.workload, latency.name, point.nodes);
                lines.push(std::iter::once(name).chain(values).collect());
            }
        }
    }
    let _ = write!(out, "\n{}", columns(&lines));
}

/// The number of documents of the query, here and as published; empty for other workloads, whose operations only
/// concern one document.
fn sizes(sweep: &SweepResult, series: &Series) -> String {
    let published = published::documents(REPORT, &series.workload);
    let measured = sweep.settings.get("records").and_then(serde_json::Value::as_u64);
    match (published, measured) {
        (Some(published), Some(measured)) => {
            format!(", over {} documents; published over {}", thousands(measured), thousands(published))
        }
        _ => String::new(),
    }
}

/// Formats a fit as one line.
fn law(fit: &Fit) -> String {
    let parameters = match (fit.lambda, fit.sigma, fit.kappa) {
        (Some(lambda), Some(sigma), Some(kappa)) => {
            format!("lambda {lambda:.4}, sigma {sigma:.4}, kappa {kappa:.5}")
        }
        _ => "no parameters".to_owned(),
    };
    match (&fit.why_not, fit.peak_nodes) {
        (Some(why), _) => format!("not applicable: {why} ({parameters})"),
        (None, Some(peak)) => format!("{parameters}, highest at {peak:.0} nodes"),
        (None, None) => parameters,
    }
}

fn quota(sweep: &SweepResult) -> String {
    let quota = &sweep.quota;
    match (quota.core_share, quota.quota_us.zip(quota.period_us)) {
        (Some(share), Some((quota_us, period_us))) => format!(
            "{:.1} % of a core per node ({}: {quota_us} us of every {period_us} us{})",
            share * 100.0,
            quota.kind,
            match (&quota.scheduling, &quota.why_not_batch) {
                (Some(how), _) => format!(", {how} scheduling"),
                (None, Some(_)) => ", no batch scheduling".to_owned(),
                (None, None) => String::new(),
            }
        ),
        _ => format!(
            "no equal shares of processor time ({}): read the CPU per operation, not the throughput",
            quota.why_none.as_deref().unwrap_or("not asked for")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::columns;

    #[test]
    fn wide_cells_do_not_touch_and_lines_agree() {
        let line = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text =
            columns(&[line(["nodes", "CPU/op", "disk/op"]), line(["1", "123456789 us", "1234567890123 B"])]);
        assert_eq!(text, "nodes        CPU/op          disk/op\n1      123456789 us  1234567890123 B\n");
        assert_eq!(columns(&[line(["one", "-", ""])]), "one  -\n");
    }
}
