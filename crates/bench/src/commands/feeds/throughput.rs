//! Feeds of the whole table at a high rate of writes.

use serde_json::json;

use super::figures::{at_most, completeness, extra_cpu_us, figure, result, total};
use super::load::{Load, LoadShape};
use super::site::Site;
use super::table_feeds::{Part, write_with};
use crate::result::{CheckOutcome, Figure, RunResult};

/// Processor time of the servers per event.
const CPU_US_PER_EVENT_MAX: f64 = 6.0;
/// Duration of a load by the duration that was asked for.
const LATE_RATIO_MAX: f64 = 1.05;
/// Time between the last acknowledgement and the last event.
const LAG_SECONDS_MAX: f64 = 1.0;

pub(super) fn measure(site: &mut Site<'_>) -> anyhow::Result<RunResult> {
    let args = site.args;
    let ledger = site.prepare(site.kinds(1))?;
    let shape = LoadShape { rate: args.throughput_rate, match_every: 0, followed: None };
    let none = site.load(&ledger, shape)?;
    let own = json!({ "throughput-rate": args.throughput_rate, "table-feeds": args.table_feeds, "no-feed": args.no_feed });
    let cost =
        figure("server CPU per update of a table that never had a feed", none.cpu_us_per_write(), "us");
    if args.no_feed {
        let about = site.about(&none.plan, own);
        let mut result = result(site, about, none, &["WRITE"], &[], Vec::new());
        result.figures = vec![cost];
        return Ok(result);
    }
    let one = write_with(site, &ledger, 1, args.throughput_rate)?;
    let many = write_with(site, &ledger, args.table_feeds, args.throughput_rate)?;
    let mut figures = vec![figure("writes asked for", Some(args.throughput_rate), "a second")];
    figures.push(figure("writes without a feed", reached(&none), "a second"));
    figures.extend(figures_of(&one, &many, &none, args.seconds));
    figures.push(cost);
    let about = site.about(&many.load.plan, own);
    let mut checks = checks(&one, 1);
    checks.extend(self::checks(&many, args.table_feeds));
    let Part { load, tallies, seen, .. } = many;
    let mut result = result(site, about, load, &["WRITE"], &tallies, checks);
    result.figures = figures;
    let ended = one.seen.ended.first().or(seen.ended.first());
    result.notes.extend(ended.map(|(feed, why)| format!("feed {feed} ended: {why}")));
    Ok(result)
}

/// Acknowledged writes a second.
fn reached(load: &Load) -> Option<f64> {
    Some(load.writes() as f64 / load.driven.measured_seconds)
}

fn figures_of(one: &Part, many: &Part, without: &Load, seconds: f64) -> Vec<Figure> {
    let feeds = many.seen.delivered.len();
    let late = one.load.driven.measured_seconds / seconds;
    let per_event = |part: &Part| extra_cpu_us(&part.load, without, total(&part.tallies).delivered);
    vec![
        figure("writes with one feed", reached(&one.load), "a second"),
        at_most("duration of these writes by --seconds", Some(late), "", LATE_RATIO_MAX),
        at_most("lag of one feed at the end", Some(one.lag_seconds), "s", LAG_SECONDS_MAX),
        figure("server CPU per event of one feed", per_event(one), "us"),
        figure(&format!("writes with {feeds} feeds"), reached(&many.load), "a second"),
        figure(&format!("lag of {feeds} feeds at the end"), Some(many.lag_seconds), "s"),
        at_most(
            &format!("server CPU per event of {feeds} feeds"),
            per_event(many),
            "us",
            CPU_US_PER_EVENT_MAX,
        ),
    ]
}

fn checks(part: &Part, feeds: u32) -> Vec<CheckOutcome> {
    let named =
        |check: CheckOutcome| CheckOutcome { name: format!("{} ({feeds} feeds)", check.name), ..check };
    completeness(&part.tallies, &part.seen).into_iter().map(named).collect()
}
