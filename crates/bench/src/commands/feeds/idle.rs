//! The memory and processor time of feeds without changes.

use std::time::{Duration, Instant};

use serde_json::json;

use super::figures::{at_most, figure, result};
use super::load::{Followed, LoadShape};
use super::site::Site;
use crate::result::RunResult;

/// Memory of an idle feed.
const KIB_PER_FEED_MAX: f64 = 20.0;
/// Processor time of all idle feeds.
const CORE_PERCENT_MAX: f64 = 1.0;
/// After the feeds are open, the server has this long to become idle.
const CALM: Duration = Duration::from_secs(2);

pub(super) fn measure(site: &mut Site<'_>) -> anyhow::Result<RunResult> {
    let args = site.args;
    let kinds = site.kinds(args.feeds);
    let ledger = site.prepare(kinds.clone())?;
    let shape = LoadShape { rate: args.writes_per_second, match_every: 0, followed: None };
    let without = site.load(&ledger, shape)?;

    let memory_before = site.memory_bytes()?;
    let feeds = Followed::start(site.open(&kinds, args.feed_connections, &json!({}), true)?)?;
    std::thread::sleep(CALM);
    let memory_open = site.memory_bytes()?;

    site.say(&format!("waiting for {} s", args.seconds));
    let (since, cpu_before) = (Instant::now(), site.cpu_seconds()?);
    std::thread::sleep(Duration::try_from_secs_f64(args.seconds)?);
    let core_percent = (site.cpu_seconds()? - cpu_before) / since.elapsed().as_secs_f64() * 100.0;
    // The server returns the memory in which it has opened the feeds only after a while.
    let memory_after = site.memory_bytes()?;
    let kib = memory_after.saturating_sub(memory_before) as f64 / 1024.0 / f64::from(args.feeds);

    let with = site.load(&ledger, shape)?;
    let seen = feeds.end()?;
    let extra = with.cpu_us_per_write().zip(without.cpu_us_per_write()).map(|(with, without)| with - without);
    let figures = vec![
        at_most("memory of an idle feed", Some(kib), "KiB", KIB_PER_FEED_MAX),
        at_most(
            "server CPU with idle feeds and no writes",
            Some(core_percent),
            "% of a core",
            CORE_PERCENT_MAX,
        ),
        figure("server CPU per commit that no feed has", with.cpu_us_per_write(), "us"),
        figure("server CPU per commit before the first feed", without.cpu_us_per_write(), "us"),
        figure("difference, for all feeds together", extra, "us"),
        figure("time until the servers were idle after these commits", with.busy_after_seconds, "s"),
    ];
    let own = json!({
        "feeds": args.feeds,
        "kinds": super::kind_names(&args.kinds),
        "feed-connections": args.feed_connections,
    });
    let about = site.about(&with.plan, own);
    let checks = vec![
        super::figures::equal(
            "events without a write",
            0,
            seen.delivered.iter().sum(),
            "no row of a feed was written",
        ),
        super::figures::equal("feeds that ended", 0, seen.ended.len() as u64, "none was closed"),
    ];
    let mut result = result(site, about, with, &["WRITE"], &[], checks);
    result.figures = figures;
    result.notes.push(format!(
        "memory of the servers: {} MB before the feeds were opened, {} MB when they were open, {} MB after {} s without writes",
        memory_before / 1_000_000,
        memory_open / 1_000_000,
        memory_after / 1_000_000,
        args.seconds
    ));
    Ok(result)
}
