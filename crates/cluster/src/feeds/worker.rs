//! The thread of the feeds.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use io::task;
use log::GroupId;

use super::counters::Counters;
use super::history_use::HistoryUse;
use super::inbox::{Inbox, Message};
use super::moves::move_on;
use super::serve::Readers;
use super::source::Sources;
use super::streams::Streams;
use super::subscription::FeedEnd;

/// How often sources are checked while there are streams.
const TICK_INTERVAL: Duration = Duration::from_millis(200);
/// How often the lag of feeds is measured.
const LAG_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two messages to the leader of a group that its history is used.
const USE_INTERVAL: Duration = Duration::from_secs(30);

/// The state of the thread, which no other thread touches.
pub(crate) struct FeedsWorker {
    inbox: Arc<Inbox>,
    sources: Sources,
    history_use: Arc<HistoryUse>,
    counters: Arc<Counters>,
    streams: Streams,
    readers: Readers,
    ticked_at: Instant,
    measured_at: Instant,
    used_at: Instant,
}

impl FeedsWorker {
    pub(super) fn new(
        inbox: Arc<Inbox>,
        sources: Sources,
        history_use: Arc<HistoryUse>,
        counters: Arc<Counters>,
    ) -> FeedsWorker {
        FeedsWorker {
            streams: Streams::new(inbox.clone()),
            inbox,
            sources,
            history_use,
            counters,
            readers: Readers::default(),
            ticked_at: task::now(),
            measured_at: task::now(),
            used_at: task::now(),
        }
    }

    /// Runs until the node stops.
    pub(crate) fn run(mut self) {
        let mut has_more = false;
        loop {
            let is_idle = self.streams.is_empty() && self.readers.is_empty();
            let timeout = if has_more { Some(Duration::ZERO) } else { (!is_idle).then_some(TICK_INTERVAL) };
            for message in self.inbox.take(timeout) {
                if matches!(message, Message::Stop) {
                    return self.streams.end_all(FeedEnd::Stopped);
                }
                self.handle(message);
            }
            let now = task::now();
            if now - self.ticked_at >= TICK_INTERVAL {
                self.ticked_at = now;
                self.tick(now);
            }
            has_more = self.streams.read_own(&self.sources);
            if std::mem::take(&mut self.streams.has_new_seal) {
                self.move_on();
            }
            self.counters.events.store(self.streams.events, Ordering::Relaxed);
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Recorded(group, records) => {
                self.streams.take_recorded(group, records);
                self.readers.wake(&self.sources, group);
            }
            Message::Interrupted(group) => {
                self.streams.interrupt(group);
                self.readers.wake(&self.sources, group);
            }
            Message::Subscribe(subscription) => {
                let segments = subscription.segments();
                self.streams.follow_all(&subscription, segments);
            }
            Message::Response { stream, server, response } => {
                self.streams.take_response(&self.sources, stream, server, response);
            }
            Message::Read { group, after, respond } => {
                // Before the history is read, so that no later entry is missed.
                self.inbox.watch(group);
                self.readers.read(&self.sources, group, after, respond, task::now());
            }
            Message::Catalog => {
                self.streams.follow_catalog(&self.sources.catalog.shown());
                self.move_on();
            }
            Message::Room | Message::Stop => {}
        }
    }

    fn tick(&mut self, now: Instant) {
        self.readers.tick(&self.sources, now);
        self.streams.place_late(now);
        self.streams.check_sources(&self.sources, now);
        for group in self.streams.drop_unused() {
            if !self.readers.waits_for(group) {
                self.inbox.unwatch(group);
            }
        }
        self.move_on();
        if now - self.used_at >= USE_INTERVAL {
            self.used_at = now;
            self.streams.groups().into_iter().for_each(|group| self.report_use(group));
        }
        let subscriptions = self.streams.iter().map(|stream| stream.followers.len() as u64).sum();
        self.counters.subscriptions.store(subscriptions, Ordering::Relaxed);
        self.counters.streams.store(self.streams.groups().len() as u64, Ordering::Relaxed);
        if now - self.measured_at >= LAG_INTERVAL {
            self.measured_at = now;
            let (positions, lag) = self.streams.lag(now);
            self.counters.lag_positions.store(positions, Ordering::Relaxed);
            self.counters.lag_us.store(lag.as_micros() as u64, Ordering::Relaxed);
        }
    }

    fn move_on(&mut self) {
        let moved = move_on(&mut self.streams, &self.sources.catalog.shown());
        self.counters.moves.fetch_add(moved, Ordering::Relaxed);
    }

    /// Tells the leader of a group that its history is used.
    fn report_use(&self, group: GroupId) {
        match self.sources.leader(group) {
            Some(leader) if leader == self.sources.own => self.history_use.note(group),
            Some(leader) => self.sources.report_use(leader, group),
            None => {}
        }
    }
}
