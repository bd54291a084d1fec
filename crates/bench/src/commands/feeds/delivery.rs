//! Many feeds, and writes of which one in some changes the rows of one feed.

use serde_json::json;

use super::figures::{at_most, completeness, extra_cpu_us, figure, lag_seconds, result, total};
use super::load::{Followed, LoadShape};
use super::site::Site;
use crate::feeds::checker::check;
use crate::measure::histogram::{max_us, quantile_us};
use crate::result::RunResult;

/// An event must arrive within this time of its commit, 99 of 100 times.
const P99_US_MAX: f64 = 5_000.0;

pub(super) fn measure(site: &mut Site<'_>) -> anyhow::Result<RunResult> {
    let args = site.args;
    let kinds = site.kinds(args.feeds);
    let ledger = site.prepare(kinds.clone())?;
    let feeds = Followed::start(site.open(&kinds, args.feed_connections, &json!({}), true)?)?;
    let shape = LoadShape { rate: args.writes_per_second, match_every: 0, followed: Some((&feeds, 0)) };
    let unmatched = site.load(&ledger, shape)?;
    let matched = site.load(&ledger, LoadShape { match_every: args.match_every, ..shape })?;
    let seen = feeds.end()?;
    let written = ledger.written_since(0);
    let tallies = check(&kinds, &written, &seen.arrivals);
    let lag = lag_seconds(&written, &seen);

    let all = total(&tallies);
    let times = [&all.from_commit, &all.from_send].map(|times| (!times.is_empty()).then_some(times));
    let at = |quantile| times[0].map(|times| quantile_us(times, quantile));
    let from_send_at = |quantile| times[1].map(|times| quantile_us(times, quantile));
    let cpu_us = extra_cpu_us(&matched, &unmatched, all.delivered);
    let figures = vec![
        figure("commit to delivery, p50", at(0.5), "us"),
        figure("commit to delivery, p90", at(0.9), "us"),
        at_most("commit to delivery, p99", at(0.99), "us", P99_US_MAX),
        figure("commit to delivery, longest", times[0].map(max_us), "us"),
        figure("sending the write to delivery, p50", from_send_at(0.5), "us"),
        figure("sending the write to delivery, p99", from_send_at(0.99), "us"),
        figure("lag when the writes end", Some(lag), "s"),
        figure("server CPU per delivered event", cpu_us, "us"),
        figure("server CPU per write that no feed has", unmatched.cpu_us_per_write(), "us"),
        figure("server CPU per write, with matching ones", matched.cpu_us_per_write(), "us"),
    ];
    let own = json!({
        "feeds": args.feeds,
        "kinds": super::kind_names(&args.kinds),
        "feed-connections": args.feed_connections,
        "match-every": args.match_every,
    });
    let about = site.about(&matched.plan, own);
    let checks = completeness(&tallies, &seen);
    let mut result = result(site, about, matched, &["WRITE"], &tallies, checks);
    result.figures = figures;
    result.notes.push(format!(
        "{} of {} events arrived before the acknowledgement of their write",
        all.before_commit, all.delivered
    ));
    result.notes.extend(seen.ended.first().map(|(feed, why)| format!("feed {feed} ended: {why}")));
    Ok(result)
}
