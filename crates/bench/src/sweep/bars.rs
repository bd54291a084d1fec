//! The project's goals for a sweep, as far as the measured sizes allow a verdict.

use super::document::{Bar, Point, Series};
use super::summarize::{self, REPORT};
use crate::published;

/// The verdicts for these series.
pub fn bars(series: &[Series]) -> Vec<Bar> {
    growths(series).chain(bars_without_shares(series)).collect()
}

/// The goals that also apply without limits on the nodes: more nodes do not have more processor time then, so
/// throughput has no goal.
pub fn bars_without_shares(series: &[Series]) -> Vec<Bar> {
    tail(series).into_iter().chain(cost(series)).collect()
}

fn growths(series: &[Series]) -> impl Iterator<Item = Bar> {
    let growths =
        [("c-outdated", 1, 16, 12.0), ("c-sync", 1, 16, 9.0), ("a", 2, 16, 7.0), ("analytic", 1, 16, 13.0)];
    growths.into_iter().filter_map(|(workload, from, to, wanted)| {
        growth(series, workload, from, to).map(|found| Bar {
            name: format!("{workload}: throughput at {to} nodes by that at {from}"),
            relation: "at least".to_owned(),
            wanted,
            found,
            published: published_growth(workload, from, to),
            ok: found >= wanted,
        })
    })
}

fn at<'a>(series: &'a [Series], workload: &str, nodes: usize) -> Option<&'a Point> {
    let one = series.iter().find(|one| one.workload == workload)?;
    one.points.iter().find(|point| point.nodes == nodes)
}

fn growth(series: &[Series], workload: &str, from: usize, to: usize) -> Option<f64> {
    Some(summarize::growth(at(series, workload, from)?, at(series, workload, to)?))
}

fn published_growth(workload: &str, from: usize, to: usize) -> Option<f64> {
    Some(published::per_second(REPORT, workload, to)? / published::per_second(REPORT, workload, from)?)
}

fn tail(series: &[Series]) -> Option<Bar> {
    let updates = at(series, "a", 16)?.latency.iter().find(|one| one.name == "UPDATE")?;
    let found = updates.service.p99_us? / updates.service.p50_us?;
    let published = published::latency_ms(REPORT, "a", "UPDATE", 16);
    Some(Bar {
        name: "a: p99 of updates at 16 nodes by their p50".to_owned(),
        relation: "at most".to_owned(),
        wanted: 12.0,
        found,
        published: published.map(|(p50, p99)| p99 / p50),
        ok: found <= 12.0,
    })
}

fn cost(series: &[Series]) -> Option<Bar> {
    let cpu = |nodes| at(series, "c-sync", nodes)?.server_cpu_us_per_operation;
    let found = cpu(16)? / cpu(4)?;
    Some(Bar {
        name: "c-sync: server CPU per operation at 16 nodes by that at 4".to_owned(),
        relation: "at most".to_owned(),
        wanted: 1.4,
        found,
        published: None,
        ok: found <= 1.4,
    })
}
