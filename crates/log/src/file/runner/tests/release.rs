//! When segments leave the log, and when the engine is flushed for that.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use io::Random;

use super::*;
use crate::file::runner::FlushJob;
use crate::record::Record;

const SEGMENT_BYTES: u64 = 64 << 10;
const LIMITS: FlushPolicy = FlushPolicy {
    log_bytes_max: 1 << 20,
    replay_bytes_max: 256 << 10,
    flush_interval: Duration::from_secs(60),
    ..POLICY
};

/// An engine whose durable position a test sets.
#[derive(Default)]
struct Engine {
    applied: AtomicU64,
    durable: AtomicU64,
    flushes: AtomicU64,
}

impl Applier for Engine {
    fn apply(&self, entries: &[Entry]) -> Result<(), ApplyError> {
        self.applied.store(entries.last().map_or(0, |entry| entry.lsn.0), Relaxed);
        Ok(())
    }

    fn applied(&self, _: GroupId) -> Lsn {
        Lsn(self.applied.load(Relaxed))
    }

    fn durable(&self, groups: &[GroupId]) -> Vec<Lsn> {
        vec![Lsn(self.durable.load(Relaxed)); groups.len()]
    }

    fn flush(&self) -> Result<(), ApplyError> {
        self.flushes.fetch_add(1, Relaxed);
        self.durable.store(self.applied.load(Relaxed), Relaxed);
        Ok(())
    }
}

struct Bed {
    runner: Runner<FileStore>,
    clock: SimClock,
    engine: Arc<Engine>,
}

impl Bed {
    fn new() -> Bed {
        let (clock, engine) = (SimClock::new(), Arc::new(Engine::default()));
        let environment = Environment {
            applier: engine.clone(),
            clock: Arc::new(clock.clone()),
            random: Arc::new(SimRandom::new(1)),
            transport: Arc::new(Noop),
            observer: Arc::new(Noop),
        };
        let store = store_of(&SimFiles::new(1), StoreOptions { segment_bytes: SEGMENT_BYTES });
        let mut runner = Runner::new(store, environment, LIMITS);
        runner.open_group(GROUP, Lsn(0), &InitialConfig::Single).unwrap();
        runner.sync_now();
        Bed { runner, clock, engine }
    }

    /// Appends about so many bytes, in entries that do not shrink, and makes them durable.
    fn append(&mut self, bytes: u64) {
        let random = SimRandom::new(bytes);
        for _ in 0..bytes / 1000 {
            let payload: Vec<u8> = (0..960).map(|_| random.next_u64() as u8).collect();
            let work = Work::Entry(payload.into(), Durability::Soft);
            self.runner.step(&mut vec![Proposal { group: GROUP, term: None, work, done: Box::new(|_| {}) }]);
            self.runner.sync_now();
        }
    }

    /// Carries out the work in the engine that is due, if any.
    fn work(&mut self) {
        while let Some(mut job) = self.runner.begin_flush() {
            let result = FlushJob::run(&mut job, &*self.engine);
            self.runner.end_flush(&job, result);
        }
    }

    fn log_bytes(&self) -> u64 {
        self.runner.stats().disk_bytes
    }

    fn flushes(&self) -> u64 {
        self.engine.flushes.load(Relaxed)
    }
}

#[test]
fn segments_go_when_the_engine_has_flushed_by_itself() {
    let mut bed = Bed::new();
    bed.append(200 << 10);
    bed.work();
    assert!(bed.log_bytes() > 200 << 10, "the engine has nothing durably");
    bed.engine.durable.store(bed.engine.applied.load(Relaxed), Relaxed);
    bed.append(40 << 10);
    bed.work();
    assert!(bed.log_bytes() < 2 * SEGMENT_BYTES, "{}", bed.log_bytes());
    assert_eq!(bed.flushes(), 0);
}

#[test]
fn the_engine_is_flushed_when_too_much_would_be_replayed() {
    let mut bed = Bed::new();
    for _ in 0..20 {
        bed.append(50 << 10);
        bed.work();
        assert!(bed.log_bytes() <= LIMITS.replay_bytes_max + 2 * SEGMENT_BYTES, "{}", bed.log_bytes());
    }
    assert!((2..=6).contains(&bed.flushes()), "{}", bed.flushes());
}

#[test]
fn an_idle_log_is_flushed_and_let_go() {
    let mut bed = Bed::new();
    bed.append(40 << 10);
    bed.work();
    assert_eq!((bed.flushes(), bed.runner.stats().segments), (0, 1));
    while bed.flushes() == 0 {
        let due = bed.runner.due().expect("a flush is due");
        bed.clock.advance(due.since(bed.clock.now()).max(Duration::from_millis(1)));
        pass(&mut bed.runner, &bed.clock, 1);
        bed.work();
    }
    assert!(bed.log_bytes() < 8 << 10, "{}", bed.log_bytes());
    bed.clock.advance(10 * LIMITS.flush_interval);
    bed.work();
    assert_eq!(bed.flushes(), 1, "nothing was appended since");
}

#[test]
fn entries_that_another_replica_lacks_stay_until_the_log_is_too_long() {
    let mut bed = Bed::new();
    let work = Work::Change(MemberChange::AddLearner(PeerId(9)));
    bed.runner.step(&mut vec![Proposal { group: GROUP, term: None, work, done: Box::new(|_| {}) }]);
    bed.runner.sync_now();
    for _ in 0..9 {
        bed.append(100 << 10);
        bed.engine.durable.store(bed.engine.applied.load(Relaxed), Relaxed);
        bed.work();
    }
    assert_eq!(bed.flushes(), 0);
    assert_eq!(bed.runner.group_status(GROUP).unwrap().start, Lsn(0));
    bed.append(200 << 10);
    bed.work();
    assert!(bed.log_bytes() < 2 * SEGMENT_BYTES, "{}", bed.log_bytes());
    assert!(bed.runner.group_status(GROUP).unwrap().start > Lsn(0));
}

#[test]
fn entries_of_a_closed_group_go() {
    let mut bed = Bed::new();
    bed.append(40 << 10);
    bed.runner.close_group(GROUP).unwrap();
    bed.work();
    assert!(bed.log_bytes() < 4 << 10, "{}", bed.log_bytes());
}

#[test]
fn long_entries_of_text_take_little_and_come_back() {
    let files = SimFiles::new(1);
    let mut store = store_of(&files, StoreOptions::default());
    store.push(&Record::Member { group: GROUP, peer: 1, members: Members::first(vec![PeerId(1)]) });
    let text = "each replica of the group has the same entries in the same order; ".repeat(40);
    let payload = |index: u64| match index % 3 {
        0 => format!("short {index}"),
        _ => format!("{index} {text}"),
    };
    let kind = EntryKind::Proposed(Durability::Hard);
    for index in 1..=300 {
        let payload = payload(index).into_bytes();
        store.push(&Record::Entry { group: GROUP, index, term: 1, kind, payload: &payload });
    }
    store.write().unwrap();
    assert!(store.size().bytes < 100_000, "{} bytes for half a million", store.size().bytes);
    let check = |store: &FileStore| {
        let entries = store.read(GROUP, 0, usize::MAX).unwrap();
        assert_eq!(entries.len(), 300);
        for entry in entries {
            assert_eq!(
                (entry.term, entry.kind, &entry.payload[..]),
                (1, kind, payload(entry.index).as_bytes())
            );
        }
    };
    check(&store);
    drop(store);
    check(&store_of(&files, StoreOptions::default()));
}
