//! Combines runs to series: speed-up and efficiency beside the published ones, the fits, the alarms.

use std::collections::BTreeMap;

use super::document::{NamedLatency, NodeUse, Point, PublishedPoint, Series};
use super::run::{SweepRun, Workload};
use super::{condition_alarms, usl};
use crate::published;
use crate::result::{Alarm, Latency};

/// The report whose experiments a sweep repeats.
pub const REPORT: &str = "rethinkdb-2.1.5";
/// Cluster sizes of that report.
pub const PUBLISHED_SIZES: [usize; 7] = [1, 2, 3, 4, 8, 12, 16];
/// Why a fit uses one size less than was run.
const ONE_EXCLUDED: &str = "one node is excluded: it neither forwards nor replicates";

/// The series of `workload` in `runs`; `None` if it was not run. If a size was run several times, its point is the
/// median run.
pub fn series(workload: Workload, runs: &[SweepRun]) -> Option<Series> {
    let mut by_size: BTreeMap<usize, Vec<&SweepRun>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.workload == workload) {
        by_size.entry(run.nodes).or_default().push(run);
    }
    let mut points: Vec<Point> = by_size.values().filter_map(|rounds| middle(rounds)).collect();
    // The speed-up of A is relative to two nodes, because one node has one replica. Everything else is relative to the
    // smallest cluster, even where that is not flattering.
    let is_base = |nodes: usize| workload != Workload::A || nodes >= 2;
    points.first()?;
    let base = points.iter().find(|point| is_base(point.nodes)).cloned();
    if let Some(base) = &base {
        points
            .iter_mut()
            .filter(|point| point.nodes >= base.nodes)
            .for_each(|point| compare(workload, base, point));
    }
    let fitted = |mut all: Vec<(usize, f64)>| {
        let sizes = all.len();
        all.retain(|(nodes, _)| !workload.starts_at_two() || *nodes >= 2);
        let fit = usl::fit(&all);
        let explained = |why| if all.len() < sizes { format!("{why} ({ONE_EXCLUDED})") } else { why };
        usl::Fit { why_not: fit.why_not.map(explained), ..fit }
    };
    let rate = |nodes: usize| Some((nodes, published::per_second(REPORT, workload.key(), nodes)?));
    Some(Series {
        workload: workload.key().to_owned(),
        name: workload.title().to_owned(),
        unit: workload.unit().to_owned(),
        base_nodes: base.map(|base| base.nodes),
        fit: fitted(points.iter().map(|point| (point.nodes, point.per_second)).collect()),
        published_fit: fitted(PUBLISHED_SIZES.into_iter().filter_map(rate).collect()),
        points,
    })
}

/// Computes speed-up and efficiency of `point` relative to `base`, measured and published.
fn compare(workload: Workload, base: &Point, point: &mut Point) {
    let nodes = point.nodes;
    let speed_up = Some(growth(base, point));
    (point.speed_up, point.efficiency) = (speed_up, efficiency(speed_up, nodes, base.nodes));
    if let Some(published) = &mut point.published {
        let published_base = published::per_second(REPORT, workload.key(), base.nodes);
        published.speed_up = published_base.map(|base| published.per_second / base);
        published.efficiency = efficiency(published.speed_up, nodes, base.nodes);
    }
}

/// The alarms of all points, each kind once with the sizes at which it was raised. The message is that of the first
/// size; sizes with other figures are listed separately.
pub fn alarms(series: &[Series]) -> Vec<Alarm> {
    let mut seen: Vec<MergedAlarm> = Vec::new();
    for one in series {
        for point in &one.points {
            for alarm in &point.alarms {
                let place = format!("{} at {}", one.workload, point.nodes);
                match seen.iter_mut().find(|known| known.alarm.kind == alarm.kind) {
                    Some(known) => known.add(alarm, place),
                    None => seen.push(MergedAlarm {
                        alarm: alarm.clone(),
                        alike: vec![place],
                        others: Vec::new(),
                    }),
                }
            }
        }
    }
    seen.into_iter().map(MergedAlarm::into_alarm).collect()
}

/// Alarms of one kind.
struct MergedAlarm {
    /// The first one.
    alarm: Alarm,
    /// The places with the same message.
    alike: Vec<String>,
    /// The places with other messages only.
    others: Vec<String>,
}

impl MergedAlarm {
    /// Adds a place. Several rounds of one size count as one place.
    fn add(&mut self, alarm: &Alarm, place: String) {
        if self.alike.contains(&place) || self.others.contains(&place) {
            return;
        }
        let is_alike = alarm.message == self.alarm.message;
        if is_alike { self.alike.push(place) } else { self.others.push(place) }
    }

    fn into_alarm(self) -> Alarm {
        let (alike, others) = (self.alike.join(", "), self.others.join(", "));
        let places = match others.is_empty() {
            true => alike,
            false => format!("{alike}; with other figures: {others}"),
        };
        Alarm { message: format!("{} ({places})", self.alarm.message), kind: self.alarm.kind }
    }
}

/// The ratio of the throughput at `to` to that at `from`. Ratios are taken within rounds, because the machine may change
/// between rounds. The result is the median over the rounds in which both succeeded (of two in the middle, the smaller
/// one). If there is no such round, it is the ratio of the median runs.
pub(super) fn growth(from: &Point, to: &Point) -> f64 {
    let in_one_round = from.rounds.iter().zip(&to.rounds);
    let mut ratios: Vec<f64> = in_one_round.filter_map(|(from, to)| Some((*to)? / (*from)?)).collect();
    ratios.sort_by(f64::total_cmp);
    let middle = ratios.get(ratios.len().saturating_sub(1) / 2);
    middle.copied().unwrap_or(to.per_second / from.per_second)
}

/// The point of one size: the median run, for an even number the slower of the two in the middle. Alarms and failures
/// of all rounds are included.
fn middle(rounds: &[&SweepRun]) -> Option<Point> {
    let mut by_speed: Vec<(f64, &SweepRun)> = rounds.iter().map(|run| (per_second(run), *run)).collect();
    by_speed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (_, run) = by_speed.get(by_speed.len().checked_sub(1)? / 2)?;
    let of_each = || rounds.iter().map(|run| point(run));
    let in_round = |nth| rounds.iter().find(|run| run.round == nth).map(|run| per_second(run));
    let last = rounds.iter().map(|run| run.round).max()?;
    Some(Point {
        rounds: (0..=last).map(in_round).collect(),
        failed: of_each().map(|point| point.failed).sum(),
        alarms: of_each().flat_map(|point| point.alarms).collect(),
        ..point(run)
    })
}

fn point(run: &SweepRun) -> Point {
    let result = &run.result;
    let operations = result.throughput.operations as f64;
    let per_operation = |amount: Option<f64>| amount.filter(|_| operations > 0.0).map(|a| a / operations);
    let seconds = result.time.measured_seconds.max(1e-9);
    let sent = run.conditions.link_bytes_per_operation.as_deref();
    let by_node = result.servers.iter().enumerate().map(|(nth, server)| NodeUse {
        address: server.address.clone(),
        core_share: server.cpu_seconds.map(|cpu| cpu / seconds),
        cpu_us_per_operation: per_operation(server.cpu_seconds.map(|cpu| cpu * 1e6)),
        written_bytes_per_operation: per_operation(server.written_bytes.map(|bytes| bytes as f64)),
        link_bytes_per_operation: sent.and_then(|sent| sent.get(nth).copied()),
        memory_bytes: server.memory_bytes,
    });
    let latency = result.operations.iter().map(|one| NamedLatency {
        name: one.name.clone(),
        service: Latency { hdr: None, ..one.service.clone() },
    });
    let per_second = per_second(run);
    let no_base = |per_second| PublishedPoint { per_second, speed_up: None, efficiency: None };
    Point {
        nodes: run.nodes,
        shards: run.shards,
        replicas: run.replicas,
        run: result.id.clone(),
        per_second,
        rounds: vec![Some(per_second)],
        speed_up: None,
        efficiency: None,
        published: published::per_second(REPORT, run.workload.key(), run.nodes).map(no_base),
        latency: latency.collect(),
        server_cpu_us_per_operation: result.cost.server_cpu_us_per_operation,
        client_cpu_us_per_operation: result.cost.client_cpu_us_per_operation,
        written_bytes_per_operation: result.cost.written_bytes_per_operation,
        link_bytes_per_operation: sent.map(|sent| sent.iter().sum()),
        by_node: by_node.collect(),
        client_busiest_thread_share: result.client.busiest_thread_share,
        client_waiting_share: result.client.waiting_share,
        others_core_share: run.conditions.others_core_share,
        failed: result.operations.iter().map(|one| one.failed).sum(),
        alarms: result.alarms.iter().cloned().chain(condition_alarms::alarms(run)).collect(),
    }
}

/// The rate of a run. For the analytic query it is based on the mean of the times, as published.
fn per_second(run: &SweepRun) -> f64 {
    let result = &run.result;
    if run.workload != Workload::Analytic {
        return result.throughput.operations_per_second;
    }
    let documents = result.settings.get("documents").and_then(serde_json::Value::as_f64).unwrap_or(0.0);
    let total_ms: f64 = result.runs.iter().map(|one| one.ms).sum();
    match result.runs.len() {
        0 => 0.0,
        timed => documents * 1e3 * timed as f64 / total_ms.max(1e-9),
    }
}

fn efficiency(speed_up: Option<f64>, nodes: usize, base: usize) -> Option<f64> {
    speed_up.map(|speed_up| speed_up * base as f64 / nodes as f64)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::json;

    use super::*;
    use crate::assemble::{RunDescription, blank};
    use crate::conditions::Conditions;
    use crate::result::{OperationResult, RunResult, TimedRun};
    use crate::sweep::bars;

    fn result(per_second: f64) -> RunResult {
        let mut result = blank(RunDescription {
            kind: "ycsb-run",
            workload: String::new(),
            name: String::new(),
            label: String::new(),
            published: None,
            seed: 1,
            settings: json!({"documents": 1_000}).as_object().cloned().unwrap_or_default(),
            notes: Vec::new(),
            started: SystemTime::now(),
        });
        result.throughput.operations_per_second = per_second;
        result
    }

    fn runs(workload: Workload, rates: &[(usize, f64)]) -> Vec<SweepRun> {
        let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
        let mut run = |(nodes, rate): &(usize, f64)| SweepRun {
            workload,
            round: *seen.entry(*nodes).and_modify(|round| *round += 1).or_default(),
            nodes: *nodes,
            shards: *nodes as u32,
            replicas: 2,
            result: result(*rate),
            conditions: Conditions::default(),
        };
        rates.iter().map(&mut run).collect()
    }

    #[test]
    fn speed_up_stands_beside_the_published_one() {
        let runs = runs(Workload::COutdated, &[(16, 120.0), (1, 10.0)]);
        let series = series(Workload::COutdated, &runs).expect("it was run");
        let point = &series.points[1];
        assert_eq!((point.nodes, point.speed_up, point.efficiency), (16, Some(12.0), Some(0.75)));
        let published = point.published.as_ref().and_then(|p| p.speed_up).expect("published");
        assert!((published - 9.044).abs() < 0.001);
        let bars = bars::bars(std::slice::from_ref(&series));
        assert_eq!((bars.len(), bars[0].ok), (1, true), "{bars:?}");
        assert!(!series.fit.applies && series.published_fit.applies);
        assert!(super::series(Workload::A, &runs).is_none());
    }

    #[test]
    fn of_several_rounds_the_one_in_the_middle_counts() {
        let rates = [(1, 10.0), (16, 130.0), (1, 30.0), (16, 90.0), (1, 11.0), (16, 121.0)];
        let series = series(Workload::COutdated, &runs(Workload::COutdated, &rates)).expect("it was run");
        let points = series.points.iter().map(|point| (point.per_second, point.rounds.clone()));
        let wanted =
            [(11.0, [10.0, 30.0, 11.0].map(Some).to_vec()), (121.0, [130.0, 90.0, 121.0].map(Some).to_vec())];
        assert_eq!(points.collect::<Vec<_>>(), wanted);
        assert_eq!(series.points[1].speed_up, Some(11.0));
    }

    #[test]
    fn sizes_of_one_round_are_compared_with_each_other() {
        // The machine is half as fast in the second round, and twice as fast in the third.
        let rates = [(1, 10.0), (16, 120.0), (1, 5.0), (16, 62.0), (1, 20.0), (16, 100.0)];
        let of = |runs: &[SweepRun]| series(Workload::COutdated, runs).expect("it was run");
        let mut all = runs(Workload::COutdated, &rates);
        let growth = bars::bars(&[of(&all)]).remove(0);
        assert_eq!((of(&all).points[1].speed_up, growth.found, growth.ok), (Some(12.0), 12.0, true));
        // A failure in one round does not change the comparison of other rounds.
        all.remove(0);
        let [one, sixteen] = &of(&all).points[..] else { panic!("two sizes") };
        assert_eq!((&one.rounds[..], sixteen.speed_up), (&[None, Some(5.0), Some(20.0)][..], Some(5.0)));
        // There is no round in which both succeeded, so the median runs are compared.
        let apart = [all.remove(0), all.remove(2)];
        assert_eq!(of(&apart).points[1].speed_up, Some(6.0));
    }

    #[test]
    fn an_alarm_of_one_round_is_an_alarm_of_the_size() {
        let mut runs = runs(Workload::COutdated, &[(1, 10.0), (1, 11.0), (1, 12.0), (1, 13.0)]);
        runs[0].conditions.others_core_share = Some(0.9);
        let point = series(Workload::COutdated, &runs).expect("it was run").points.remove(0);
        assert_eq!((point.per_second, point.alarms.len()), (11.0, 1));
    }

    #[test]
    fn workloads_with_two_replicas_start_at_two_nodes() {
        let rates = [(1, 100.0), (2, 60.0), (4, 120.0), (8, 240.0), (16, 479.0)];
        let series = series(Workload::A, &runs(Workload::A, &rates)).expect("it was run");
        assert_eq!(series.base_nodes, Some(2));
        assert_eq!((series.points[0].speed_up, series.points[1].speed_up), (None, Some(1.0)));
        assert_eq!(series.fit.sizes, [2, 4, 8, 16]);
        let missed = bars::bars(std::slice::from_ref(&series));
        assert!(missed.iter().all(|bar| bar.ok), "{missed:?}");
    }

    #[test]
    fn the_query_counts_documents_by_the_mean_of_its_times() {
        let mut runs = runs(Workload::Analytic, &[(2, 3.0)]);
        let time = |ms| TimedRun { ms, server_cpu_ms: None, answer: 1.0 };
        runs[0].result.runs = vec![time(100.0), time(300.0)];
        let series = series(Workload::Analytic, &runs).expect("it was run");
        assert_eq!(series.points[0].per_second, 5_000.0);
    }

    #[test]
    fn a_latency_tail_and_a_noisy_machine_raise_alarms() {
        let mut runs = runs(Workload::A, &[(2, 10.0), (16, 80.0)]);
        runs[1].result.operations = vec![OperationResult {
            name: "UPDATE".to_owned(),
            ok: 1,
            failed: 0,
            per_second: 1.0,
            service: Latency { p50_us: Some(10.0), p99_us: Some(130.0), ..Latency::default() },
            intended: None,
            failed_service: None,
            server_cpu_us_per_operation: None,
        }];
        runs[1].conditions.others_core_share = Some(0.9);
        let series = [series(Workload::A, &runs).expect("it was run")];
        let tail = bars::bars(&series).pop().expect("a bar");
        assert_eq!((tail.found, tail.ok, tail.published), (13.0, false, Some(350.0)));
        let alarms = alarms(&series);
        assert_eq!(alarms.len(), 1);
        assert!(alarms[0].message.contains("90 %") && alarms[0].message.ends_with("(a at 16)"));
    }

    #[test]
    fn an_alarm_names_each_size_once_and_the_source_of_its_figures() {
        let rates = [(1, 10.0), (2, 20.0), (4, 40.0), (1, 10.0), (2, 20.0), (4, 40.0)];
        let mut runs = runs(Workload::COutdated, &rates);
        let shares = [0.9, 0.5, 0.9, 0.9, 0.4, 0.9];
        let each = runs.iter_mut().zip(shares);
        each.for_each(|(run, share)| run.conditions.others_core_share = Some(share));
        let alarm = alarms(&[series(Workload::COutdated, &runs).expect("it was run")]).remove(0);
        let places = "(c-outdated at 1, c-outdated at 4; with other figures: c-outdated at 2)";
        assert!(alarm.message.contains("90 %") && alarm.message.ends_with(places), "{}", alarm.message);
    }

    #[test]
    fn without_shares_throughput_is_held_against_nothing() {
        let series = series(Workload::COutdated, &runs(Workload::COutdated, &[(16, 9.0), (1, 10.0)]));
        let series = series.expect("it was run");
        assert!(bars::bars_without_shares(std::slice::from_ref(&series)).is_empty());
        assert!(!bars::bars(&[series])[0].ok);
    }

    #[test]
    fn a_size_below_the_base_has_its_figure() {
        let series = series(Workload::A, &runs(Workload::A, &[(1, 100.0)])).expect("it was run");
        let [point] = &series.points[..] else { panic!("one size") };
        assert_eq!((series.base_nodes, point.per_second, point.speed_up), (None, 100.0, None));
        assert_eq!(alarms(&[series]).len(), 0);
    }

    #[test]
    fn a_fit_notes_that_it_excludes_a_single_node() {
        let why = |workload, sizes| {
            let runs = runs(workload, &[(1, 100.0), (2, 60.0), (4, 120.0)][..sizes]);
            series(workload, &runs).expect("it was run").fit.why_not.expect("too few sizes")
        };
        let excluded = why(Workload::CSync, 3);
        assert!(excluded.starts_with("2 sizes are too few; 4 are needed (one node is excluded"));
        assert_eq!(why(Workload::COutdated, 3), "3 sizes are too few; 4 are needed");
        assert_eq!(why(Workload::COutdated, 1), "one size is too few; 4 are needed");
    }
}
