//! The metrics of changefeeds.

use std::sync::atomic::Ordering::Relaxed;

use cluster::FeedsStats;
use query::{FeedCounters, FeedKind};

use super::openmetrics::Kind::{Counter, Gauge};
use super::openmetrics::Page;

/// Writes the numbers of the histories that feeds follow.
pub fn write(page: &mut Page, feeds: &FeedsStats) {
    let FeedsStats { subscriptions, groups, events, moves, lag_positions, lag } = feeds;
    page.single(
        "rekindle_feed_subscriptions",
        Gauge,
        "Shards that changefeeds follow, counted for each feed.",
        *subscriptions as f64,
    );
    page.single("rekindle_feed_shards", Gauge, "Shards that changefeeds follow, each once.", *groups as f64);
    page.single("rekindle_feed_events", Counter, "Changes passed to changefeeds.", *events as f64);
    page.single(
        "rekindle_feed_moves",
        Counter,
        "Times a changefeed went on in the shards that replaced others.",
        *moves as f64,
    );
    page.single(
        "rekindle_feed_lag_positions",
        Gauge,
        "Log positions that a changefeed is behind a replica here, the most of all.",
        *lag_positions as f64,
    );
    page.single(
        "rekindle_feed_lag_seconds",
        Gauge,
        "Time that a change waits for its client, or a changefeed is behind a replica here, the longest of all.",
        lag.as_secs_f64(),
    );
}

/// Writes the numbers of the feeds of this node's clients and of their queues.
pub fn write_queues(page: &mut Page, feeds: &FeedCounters) {
    let mut family =
        page.family("rekindle_feeds", Gauge, "Open changefeeds, by kind. Each part of a union is one.");
    for kind in FeedKind::ALL {
        // A query with parts of different kinds; each part is counted by its own.
        if kind != FeedKind::Union {
            family.sample(&[("kind", kind.name())], feeds.open(kind) as f64);
        }
    }
    page.single(
        "rekindle_feed_overflows",
        Counter,
        "Times that changes waiting for a client were dropped because they were too many.",
        feeds.overflows.load(Relaxed) as f64,
    );
    page.single(
        "rekindle_feed_skipped",
        Counter,
        "Changes dropped in this way.",
        feeds.skipped.load(Relaxed) as f64,
    );
    page.single(
        "rekindle_feed_resumes",
        Counter,
        "Changefeeds that continued after a token.",
        feeds.resumes.load(Relaxed) as f64,
    );
}
