//! Feeds that are not read while others work.

use std::time::Instant;

use serde_json::json;

use super::figures::{at_most, completeness, equal, figure, result, total};
use super::load::Load;
use super::site::Site;
use super::table_feeds::write_with;
use crate::feeds::checker::Tally;
use crate::feeds::kind::FeedKind;
use crate::feeds::subscribers::Subscribers;
use crate::feeds::writes::Outcome;
use crate::measure::histogram::{empty, quantile_us};
use crate::result::RunResult;

/// The 99th percentile of other clients, with by without the feeds that are not read.
const P99_RATIO_MAX: f64 = 1.5;

pub(super) fn measure(site: &mut Site<'_>) -> anyhow::Result<RunResult> {
    let args = site.args;
    let ledger = site.prepare(site.kinds(1))?;
    let without = write_with(site, &ledger, 1, args.writes_per_second)?;

    let options = args.slow_queue.map_or(json!({}), |size| json!({"changefeed_queue_size": size}));
    let slow_kinds = vec![FeedKind::Table; args.slow_feeds];
    let mut slow = site.open(&slow_kinds, args.slow_feeds, &options, false)?;
    // Each has requested one batch, so the server sends until the socket is full.
    slow.request();
    let (memory_before, first) = (site.memory_bytes()?, ledger.len());
    let with = write_with(site, &ledger, 1, args.writes_per_second)?;
    let memory_after = site.memory_bytes()?;
    let peak = site.sut.watched.iter().map(|server| server.sample().peak_memory_bytes).sum::<Option<u64>>();

    let written = ledger.written_since(first);
    let committed = written.iter().filter(|write| write.outcome == Outcome::Acknowledged).count() as u64;
    site.say("reading the feeds that were not read");
    read_rest(site, &mut slow, committed)?;
    let right = slow.accounted().filter(|accounted| *accounted == committed).count() as u64;
    let (least, most) = (slow.accounted().min().unwrap_or(0), slow.accounted().max().unwrap_or(0));
    let rest = slow.into_seen();

    let ratio = |with: Option<f64>, without: Option<f64>| Some(with? / without?.max(f64::MIN_POSITIVE));
    let (writes_with, writes_without) = (write_p99(&with.load), write_p99(&without.load));
    let (feed_with, feed_without) = (delivery_p99(&with.tallies), delivery_p99(&without.tallies));
    let grown = memory_after.saturating_sub(memory_before) as f64 / 1e6;
    let skipped: u64 = rest.skipped.iter().sum();
    let figures = vec![
        at_most("p99 of writes, with by without", ratio(writes_with, writes_without), "", P99_RATIO_MAX),
        figure("p99 of writes, with", writes_with, "us"),
        figure("p99 of writes, without", writes_without, "us"),
        at_most(
            "p99 of a feed that is read, with by without",
            ratio(feed_with, feed_without),
            "",
            P99_RATIO_MAX,
        ),
        figure("p99 of a feed that is read, with", feed_with, "us"),
        figure("p99 of a feed that is read, without", feed_without, "us"),
        figure("memory that the servers took meanwhile", Some(grown), "MB"),
        figure("memory of the servers at the end", Some(memory_after as f64 / 1e6), "MB"),
        figure("highest memory of the servers", peak.map(|bytes| bytes as f64 / 1e6), "MB"),
        figure("changes that were dropped, by feed", Some(skipped as f64 / args.slow_feeds as f64), ""),
    ];
    let own = json!({ "slow-feeds": args.slow_feeds, "slow-queue": args.slow_queue });
    let about = site.about(&with.load.plan, own);
    let source = format!("each of {committed} writes; the sums are {least} to {most}");
    let mut checks = completeness(&with.tallies, &with.seen);
    checks.push(equal(
        "feeds with delivered and dropped changes as committed",
        args.slow_feeds as u64,
        right,
        &source,
    ));
    checks.push(equal("feeds that ended and were not read", 0, rest.ended.len() as u64, "none was closed"));
    let mut result = result(site, about, with.load, &["WRITE"], &with.tallies, checks);
    result.figures = figures;
    result.notes.extend(rest.ended.first().map(|(feed, why)| format!("feed {feed} ended: {why}")));
    if skipped == 0 {
        result.notes.push("no queue was full: give more --seconds or a smaller --slow-queue".to_owned());
    }
    Ok(result)
}

/// Reads until every feed accounts for `committed` changes, or none has a further one for a while.
fn read_rest(site: &Site<'_>, slow: &mut Subscribers, committed: u64) -> anyhow::Result<()> {
    let mut last = (Instant::now(), 0);
    let quiet = site.drain();
    slow.read_until(|slow| {
        let accounted: u64 = slow.accounted().sum();
        if accounted != last.1 {
            last = (Instant::now(), accounted);
        }
        slow.accounted().all(|accounted| accounted >= committed) || last.0.elapsed() >= quiet
    })
}

fn write_p99(load: &Load) -> Option<f64> {
    let times = load.driven.totals.kinds.first()?.service.clone().unwrap_or_else(empty);
    (!times.is_empty()).then(|| quantile_us(&times, 0.99))
}

fn delivery_p99(tallies: &[(FeedKind, Tally)]) -> Option<f64> {
    let times = total(tallies).from_send;
    (!times.is_empty()).then(|| quantile_us(&times, 0.99))
}
