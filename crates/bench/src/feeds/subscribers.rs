//! Clients that follow feeds: many feeds on each of several connections, all driven by one thread.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use client::dial::dial_and_greet;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::elements::{Arrival, Batch, Element, parse};
use crate::drive::clock::nanoseconds;
use crate::drive::connection::{Connection, InFlight, ReadOutcome};
use crate::drive::workload::OperationPart;
use crate::sut::SystemUnderTest;

const EVENTS_PER_WAIT: usize = 256;
/// The thread checks at least this often whether it is to stop.
const WAKE_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Feeds of one connection that are being opened at the same time.
const OPENING_MAX: usize = 32;
/// The server must open some feed within this time.
const OPEN_TIMEOUT: Duration = Duration::from_secs(120);

/// The elements of all feeds.
#[derive(Debug, Default)]
pub struct Seen {
    /// All changes, unless only counted.
    pub arrivals: Vec<Arrival>,
    /// By feed: changes that arrived.
    pub delivered: Vec<u64>,
    /// By feed: changes that the server dropped.
    pub skipped: Vec<u64>,
    /// Feeds that ended, with the reasons.
    pub ended: Vec<(u32, String)>,
    /// When the last change arrived, since the start of the measurement.
    pub last_arrival_ns: i64,
    pub received_bytes: u64,
}

/// How feeds are opened and recorded.
pub struct SubscriberPlan<'a> {
    pub sut: &'a SystemUnderTest,
    /// The query of each feed.
    pub queries: Vec<String>,
    pub connections: usize,
    /// Whether changes are kept, or only counted.
    pub keeps_arrivals: bool,
    /// Arrival times count from here.
    pub started: Instant,
}

/// Open feeds.
pub struct Subscribers {
    connections: Vec<Connection>,
    /// Queries that are not sent yet, by connection.
    unsent: Vec<Vec<(u32, String)>>,
    opening: Vec<usize>,
    /// Feeds without a requested batch: their connection and slot.
    idle: Vec<(usize, usize, InFlight)>,
    /// Whether a batch is requested as soon as one has arrived.
    continues: bool,
    epoll: OwnedFd,
    keeps_arrivals: bool,
    started: Instant,
    progress: Arc<AtomicU64>,
    seen: Seen,
}

impl Subscribers {
    /// Connects and opens all feeds. No change is requested before [`Subscribers::request`].
    pub fn open(plan: SubscriberPlan<'_>) -> anyhow::Result<Subscribers> {
        let count = plan.queries.len();
        let connections = plan.connections.min(count).max(1);
        let mut opened = Subscribers {
            connections: Vec::with_capacity(connections),
            unsent: vec![Vec::new(); connections],
            opening: vec![0; connections],
            idle: Vec::with_capacity(count),
            continues: false,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            keeps_arrivals: plan.keeps_arrivals,
            started: plan.started,
            progress: Arc::default(),
            seen: Seen { delivered: vec![0; count], skipped: vec![0; count], ..Seen::default() },
        };
        for (feed, query) in plan.queries.into_iter().enumerate() {
            opened.unsent[feed % connections].push((feed as u32, query));
        }
        for place in 0..connections {
            let address = &plan.sut.addresses[place % plan.sut.addresses.len()];
            let (stream, _) = dial_and_greet(address, &plan.sut.login)?;
            let slots = opened.unsent[place].len();
            ensure!(
                slots <= usize::from(u16::MAX),
                "{slots} feeds on one connection: give --feed-connections"
            );
            let connection = Connection::new(stream, slots)?;
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(&opened.epoll, &connection.stream, epoll::EventData::new_u64(place as u64), flags)?;
            opened.connections.push(connection);
        }
        opened.open_all(count)?;
        Ok(opened)
    }

    fn open_all(&mut self, count: usize) -> anyhow::Result<()> {
        for place in 0..self.connections.len() {
            self.send_more(place);
        }
        let mut last_progress = (Instant::now(), 0);
        while self.idle.len() < count {
            self.turn()?;
            if let Some((feed, why)) = self.seen.ended.first() {
                bail!("feed {feed} was not opened: {why}");
            }
            if self.idle.len() > last_progress.1 {
                last_progress = (Instant::now(), self.idle.len());
            }
            let (open, seconds) = (self.idle.len(), OPEN_TIMEOUT.as_secs());
            ensure!(
                last_progress.0.elapsed() < OPEN_TIMEOUT,
                "{open} of {count} feeds are open, and in {seconds} s no other one was opened"
            );
        }
        Ok(())
    }

    fn send_more(&mut self, place: usize) {
        while self.opening[place] < OPENING_MAX {
            let Some((feed, query)) = self.unsent[place].pop() else { break };
            let part = OperationPart { record: u64::from(feed), ..OperationPart::default() };
            self.connections[place].send(query.as_bytes(), InFlight { part, ..InFlight::default() });
            self.opening[place] += 1;
        }
        self.flush(place);
    }

    /// Requests the next batch of each feed that has none requested.
    pub fn request(&mut self) {
        for (place, slot, flight) in std::mem::take(&mut self.idle) {
            self.connections[place].send_continue(slot, flight);
        }
        (0..self.connections.len()).for_each(|place| self.flush(place));
    }

    /// The number of changes that have arrived or were dropped, of all feeds together.
    pub fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.progress)
    }

    /// Changes that arrived or were dropped, by feed.
    pub fn accounted(&self) -> impl Iterator<Item = u64> + '_ {
        self.seen.delivered.iter().zip(&self.seen.skipped).map(|(delivered, skipped)| delivered + skipped)
    }

    /// Reads all feeds until `stop` is set, on another thread.
    pub fn follow(mut self, stop: Arc<AtomicBool>) -> std::io::Result<JoinHandle<anyhow::Result<Seen>>> {
        let work = move || {
            self.read_until(|_| stop.load(Ordering::Relaxed))?;
            Ok(self.seen)
        };
        std::thread::Builder::new().name("bench-feeds".to_owned()).spawn(work)
    }

    /// Reads all feeds until `done`, which is asked at least 50 times a second.
    pub fn read_until(&mut self, mut done: impl FnMut(&Subscribers) -> bool) -> anyhow::Result<()> {
        self.continues = true;
        self.request();
        while !done(self) {
            self.turn()?;
        }
        Ok(())
    }

    /// The elements so far.
    pub fn into_seen(self) -> Seen {
        self.seen
    }

    fn turn(&mut self) -> anyhow::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_PER_WAIT);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&WAKE_INTERVAL)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for feeds"),
        }
        events.iter().for_each(|event| self.serve(event.data.u64() as usize));
        Ok(())
    }

    fn serve(&mut self, place: usize) {
        if self.connections[place].closed {
            return;
        }
        loop {
            let outcome = self.connections[place].fill(&mut self.seen.received_bytes);
            let now_ns = nanoseconds(self.started.elapsed());
            while let Some((slot, flight, body)) = self.connections[place].take() {
                let batch = parse(self.connections[place].body(body));
                self.take(place, slot, flight, batch, now_ns);
            }
            match outcome {
                ReadOutcome::Drained => break,
                ReadOutcome::More => {}
                ReadOutcome::Closed => return self.lose(place),
            }
        }
        self.send_more(place);
    }

    fn take(&mut self, place: usize, slot: usize, flight: InFlight, batch: Batch, now_ns: i64) {
        let feed = flight.part.record as u32;
        if flight.part.detail == 0 {
            self.opening[place] -= 1;
        }
        let elements = match batch {
            Batch::Elements(elements) => elements,
            Batch::Ended(why) => return self.seen.ended.push((feed, why)),
        };
        for element in elements {
            self.record(feed, element, now_ns);
        }
        let part = OperationPart { detail: 1, ..flight.part };
        let flight = InFlight { part, ..flight };
        match self.continues {
            true => self.connections[place].send_continue(slot, flight),
            false => self.idle.push((place, slot, flight)),
        }
    }

    fn record(&mut self, feed: u32, element: Element, at_ns: i64) {
        let accounted = match element {
            Element::Change(change) => {
                self.seen.delivered[feed as usize] += 1;
                self.seen.last_arrival_ns = at_ns;
                if self.keeps_arrivals {
                    self.seen.arrivals.push(Arrival { feed, change, at_ns });
                }
                1
            }
            Element::Skipped(number) => {
                self.seen.skipped[feed as usize] += number;
                number
            }
        };
        self.progress.fetch_add(accounted, Ordering::Relaxed);
    }

    fn flush(&mut self, place: usize) {
        // The number of sent bytes is of no interest here.
        if !self.connections[place].closed && !self.connections[place].flush(&mut 0) {
            self.lose(place);
        }
    }

    fn lose(&mut self, place: usize) {
        let lost = self.connections[place].abandon();
        self.seen.ended.extend(
            lost.iter()
                .map(|flight| (flight.part.record as u32, "the server closed the connection".to_owned())),
        );
    }
}

/// After all changes have arrived, wait this long for repeated ones.
const REPEATS_TIMEOUT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until `progress` has reached `expected` and no further change arrives, or until none arrives for `quiet` and
/// the server does not work on one either, as `is_working` tells.
pub fn settle(progress: &AtomicU64, expected: u64, quiet: Duration, is_working: impl Fn() -> bool) {
    let mut last = (Instant::now(), progress.load(Ordering::Relaxed));
    loop {
        std::thread::sleep(POLL_INTERVAL);
        let now = progress.load(Ordering::Relaxed);
        if now != last.1 {
            last = (Instant::now(), now);
        }
        let wait = if now >= expected { REPEATS_TIMEOUT } else { quiet };
        if last.0.elapsed() < wait {
            continue;
        }
        if now >= expected || !is_working() {
            return;
        }
        last.0 = Instant::now();
    }
}
