//! A sweep for people who look at a terminal.

use std::fmt::Write as _;

use super::document::{Point, Series, SweepResult};
use super::usl::Fit;
use crate::terminal::{micros, thousands};

/// Everything a terminal shows of a sweep.
pub fn show(sweep: &SweepResult) -> String {
    let mut out = String::new();
    let version = sweep.target.version.as_deref().unwrap_or("unknown");
    let _ = writeln!(out, "Sweep over cluster sizes, server {version}, {}", quota(sweep));
    for series in &sweep.series {
        let _ = write!(out, "\n{} ({})\n{}", series.name, series.unit, HEAD);
        series.points.iter().for_each(|point| row(&mut out, point));
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

const HEAD: &str =
    "nodes   per second  speed-up  effic.  published  effic.  CPU/op    disk/op   links/op  client  others\n";

fn row(out: &mut String, point: &Point) {
    let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    let share = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{:.0} %", value * 100.0));
    let bytes = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0} B"));
    let published = point.published.as_ref();
    let _ = writeln!(
        out,
        "{:>5}{:>13}{:>10}{:>8}{:>11}{:>8}{:>8}{:>11}{:>11}{:>8}{:>8}",
        point.nodes,
        thousands(point.per_second.round() as u64),
        ratio(point.speed_up),
        ratio(point.efficiency),
        ratio(published.and_then(|p| p.speed_up)),
        ratio(published.and_then(|p| p.efficiency)),
        point.server_cpu_us_per_operation.map_or("-".to_owned(), micros),
        bytes(point.written_bytes_per_operation),
        bytes(point.link_bytes_per_operation),
        share(Some(point.client_busiest_thread_share)),
        share(point.others_core_share),
    );
}

fn latencies(out: &mut String, series: &[Series]) {
    let _ = writeln!(out, "\n{:<34}{}", "latency, closed loop", LATENCY_HEAD);
    for one in series {
        for point in &one.points {
            for latency in &point.latency {
                let at = |value: Option<f64>| value.map_or("-".to_owned(), micros);
                let all = &latency.service;
                let values =
                    [all.p50_us, all.p90_us, all.p95_us, all.p99_us, all.p999_us, all.max_us].map(at);
                let name = format!("{} {} at {}", one.workload, latency.name, point.nodes);
                let cells: String = values.iter().map(|value| format!("{value:>10}")).collect();
                let _ = writeln!(out, "{name:<34}{cells}");
            }
        }
    }
}

const LATENCY_HEAD: &str = "       p50       p90       p95       p99     p99.9       max";

/// A fit in one line.
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
            "{:.1} % of a core per node ({}: {quota_us} us of every {period_us} us)",
            share * 100.0,
            quota.kind
        ),
        _ => format!(
            "no equal shares of processor time ({}): read the CPU per operation, not the throughput",
            quota.why_none.as_deref().unwrap_or("not asked for")
        ),
    }
}
