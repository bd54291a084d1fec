//! A connection with several feeds. Feeds are closed and opened all the time; when the connection's node stops, or at times
//! without a reason, they continue with their tokens through another node.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use super::check::{Fault, FaultKind, Versions};
use super::connection::Connection;
use super::feed::Feed;
use super::nodes::Chosen;
use super::shared::Shared;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a response is waited for before other things are looked at.
const TICK: Duration = Duration::from_millis(20);
/// About how long a session leaves its feeds as they are.
const CHURN_INTERVAL: Duration = Duration::from_secs(2);
/// One time in this many, all feeds move to another node instead of one feed being replaced.
const MOVE_ONE_IN: u32 = 8;
const OPEN_RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// How long a feed may take to be opened or resumed, faults included.
const OPEN_TIMEOUT: Duration = Duration::from_secs(90);
const INITIAL_LOST: &str = "The initial values of a changefeed cannot be read";

/// One connection and its feeds.
pub(super) struct Session<'a> {
    shared: &'a Shared,
    number: usize,
    feeds: Vec<Slot>,
    random: StdRng,
    churn_at: Instant,
    /// The number of the last quiescent point for which this session has reported that its feeds agree.
    rested: u64,
}

struct Slot {
    feed: Feed,
    stage: Stage,
    /// Since when it is not open.
    since: Instant,
}

enum Stage {
    /// It is opened at this time.
    Closed(Instant),
    Opening {
        token: u64,
        before: Versions,
    },
    Open {
        token: u64,
    },
}

impl Slot {
    fn new(feed: Feed) -> Slot {
        Slot { feed, stage: Stage::Closed(Instant::now()), since: Instant::now() }
    }

    fn token(&self) -> Option<u64> {
        match self.stage {
            Stage::Closed(_) => None,
            Stage::Opening { token, .. } | Stage::Open { token } => Some(token),
        }
    }

    /// The connection has ended.
    fn lose(&mut self, shared: &Shared) {
        if matches!(self.stage, Stage::Open { .. }) && !self.feed.is_resumable() {
            shared.tally.count(|tally| &tally.begun_anew);
        }
        self.close_for(Duration::ZERO);
        self.since = Instant::now();
        self.feed.lost();
    }

    fn close_for(&mut self, wait: Duration) {
        if !matches!(self.stage, Stage::Closed(_)) {
            self.stage = Stage::Closed(Instant::now() + wait);
        }
    }
}

impl<'a> Session<'a> {
    /// A session with `feeds` feeds, the first of which is about the whole table in one session of eight.
    pub(super) fn new(shared: &'a Shared, number: usize, feeds: usize, mut random: StdRng) -> Session<'a> {
        let of = |nth: usize, random: StdRng| match nth == 0 && number.is_multiple_of(8) {
            true => Feed::of_table(random),
            false => Feed::random(shared, random),
        };
        let feeds =
            (0..feeds).map(|nth| Slot::new(of(nth, StdRng::seed_from_u64(random.random())))).collect();
        Session { shared, number, feeds, random, churn_at: Instant::now(), rested: 0 }
    }

    /// Reads the feeds until the run is over.
    pub(super) fn run(mut self) {
        while !self.shared.over.load(Ordering::Acquire) {
            let node = self.shared.nodes.any(&mut self.random);
            let Ok(mut connection) = Connection::open(node.driver, CONNECT_TIMEOUT, TICK) else {
                std::thread::yield_now();
                continue;
            };
            let end = self.follow(&mut connection, node);
            if let Err(error) = end
                && !self.shared.nodes.was_stopped(node)
            {
                let what = format!("the connection to n{} was lost: {error:#}", node.nth);
                self.shared.tally.fault(Fault::new(FaultKind::Ended, what), "a session");
            }
            self.feeds.iter_mut().for_each(|slot| slot.lose(self.shared));
        }
    }

    /// Follows the feeds on one connection, until all move to another one. Fails when the connection is lost.
    fn follow(&mut self, connection: &mut Connection, node: Chosen) -> Result<()> {
        while !self.shared.over.load(Ordering::Acquire) {
            self.open_closed(connection)?;
            match connection.poll()? {
                Some((token, response)) => self.take(connection, node, token, response)?,
                None => self.compare(),
            }
            if Instant::now() >= self.churn_at && self.shared.resting.current().is_none() {
                let interval = CHURN_INTERVAL.mul_f64(self.random.random_range(0.5..1.5));
                self.churn_at = Instant::now() + interval;
                if self.random.random_ratio(1, MOVE_ONE_IN) {
                    return Ok(());
                }
                self.replace_one(connection)?;
            }
        }
        Ok(())
    }

    /// Opens or resumes the feeds that are not open.
    fn open_closed(&mut self, connection: &mut Connection) -> Result<()> {
        let now = Instant::now();
        for slot in &mut self.feeds {
            if matches!(slot.stage, Stage::Closed(at) if at <= now) {
                let before = self.shared.writes.all_acknowledged();
                let token = connection.start(&slot.feed.query())?;
                slot.stage = Stage::Opening { token, before };
            }
        }
        Ok(())
    }

    /// Closes a feed and opens another one.
    fn replace_one(&mut self, connection: &mut Connection) -> Result<()> {
        // The first one stays, so that some feeds are as old as the run.
        let nth = self.random.random_range(0..self.feeds.len());
        if nth == 0 {
            return Ok(());
        }
        if let Some(token) = self.feeds[nth].token() {
            connection.stop(token)?;
            self.shared.tally.count(|tally| &tally.closed);
        }
        let seed = self.random.random();
        self.feeds[nth] = Slot::new(Feed::random(self.shared, StdRng::seed_from_u64(seed)));
        Ok(())
    }

    fn take(
        &mut self,
        connection: &mut Connection,
        node: Chosen,
        token: u64,
        mut response: Value,
    ) -> Result<()> {
        let shared = self.shared;
        // Responses to a feed that was closed may still come.
        let Some(slot) = self.feeds.iter_mut().find(|slot| slot.token() == Some(token)) else {
            return Ok(());
        };
        if response["t"] != 3 {
            fail(shared, node, slot, &response);
            return Ok(());
        }
        if let Stage::Opening { before, .. } = &slot.stage {
            let is_resumed = slot.feed.is_resumable();
            shared.tally.count(|tally| if is_resumed { &tally.resumed } else { &tally.opened });
            slot.feed.opened(shared, before, node.nth);
            slot.stage = Stage::Open { token };
        }
        let Value::Array(elements) = response["r"].take() else { return connection.proceed(token) };
        let faults = slot.feed.take(shared, elements);
        let is_lost = !faults.is_empty() && !slot.feed.continues_after_faults();
        faults.into_iter().for_each(|fault| shared.tally.fault(fault, &slot.feed.description()));
        if !is_lost {
            return connection.proceed(token);
        }
        slot.feed.begin_anew();
        slot.close_for(Duration::ZERO);
        connection.stop(token)
    }

    /// At a quiescent point: compares all feeds with the table.
    fn compare(&mut self) {
        let resting = &self.shared.resting;
        let number = resting.number();
        if number == self.rested {
            return;
        }
        let Some(rest) = resting.current() else { return };
        let compare = |slot: &mut Slot| match slot.stage {
            Stage::Open { .. } => slot.feed.rest(&rest),
            _ => Err(format!("it is not open; {}", slot.feed.description())),
        };
        let result: Result<Vec<()>, String> = self.feeds.iter_mut().map(compare).collect();
        if result.is_ok() {
            self.rested = number;
        }
        resting.report(number, self.number, result.map(|compared| compared.len() as u64));
    }
}

/// A feed was answered with an error. It is opened or resumed once more.
fn fail(shared: &Shared, node: Chosen, slot: &mut Slot, response: &Value) {
    let why = response["r"].to_string();
    let was_open = matches!(slot.stage, Stage::Open { .. });
    let is_expected = shared.nodes.was_stopped(node);
    if why.contains(INITIAL_LOST) {
        shared.tally.count(|tally| &tally.initial_lost);
        slot.feed.begin_anew();
    } else if why.contains("cannot be resumed") || (was_open && !is_expected) {
        let what = format!("{why} from n{}", node.nth);
        shared.tally.fault(Fault::new(FaultKind::Ended, what), &slot.feed.description());
        slot.feed.begin_anew();
    } else if !is_expected && slot.since.elapsed() > OPEN_TIMEOUT {
        let what = format!("not opened for {OPEN_TIMEOUT:?}: {why} from n{}", node.nth);
        shared.tally.fault(Fault::new(FaultKind::Ended, what), &slot.feed.description());
        slot.since = Instant::now();
    } else {
        shared.tally.count(|tally| &tally.retried);
        slot.feed.lost();
    }
    if was_open {
        slot.since = Instant::now();
    }
    slot.close_for(OPEN_RETRY_INTERVAL);
}
