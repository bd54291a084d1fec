//! Proposers that drive the log themselves.

#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use io::Clock;
use io::real::RealClock;
use io::sim::{Fault, SimClock, SimFiles};
use rekindle_log::file::{FileLog, FileLogOptions};
use rekindle_log::{
    Applier, ApplyError, Durability, Entry, GroupId, InitialConfig, Interruption, Log, Lsn, ProposeError,
    Refusal, StallCause,
};

const GROUP: GroupId = GroupId(3);
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Records on which thread each entry was applied; some entries do more.
struct Engine {
    clock: SimClock,
    applied: Mutex<Vec<(Bytes, Option<String>)>>,
}

impl Engine {
    /// The names of the threads that applied, in order; each test runs on a thread with another name.
    fn threads(&self) -> Vec<String> {
        let applied = self.applied.lock().unwrap();
        applied.iter().map(|(_, thread)| thread.clone().unwrap_or_default()).collect()
    }
}

impl Applier for Engine {
    fn apply(&self, entries: &[Entry]) -> Result<(), ApplyError> {
        for Entry { payload, .. } in entries {
            match &payload[..] {
                b"slow" => self.clock.advance(Duration::from_millis(100)),
                b"panic" => panic!("injected"),
                _ => {}
            }
            let thread = std::thread::current().name().map(str::to_owned);
            self.applied.lock().unwrap().push((payload.clone(), thread));
        }
        Ok(())
    }

    fn applied(&self, _group: GroupId) -> Lsn {
        Lsn(0)
    }

    fn flush(&self) -> Result<(), ApplyError> {
        Ok(())
    }
}

/// A log on simulated files. The engine's slow entries advance `clock`, which need not be the log's.
fn log_with(clock: &SimClock, of_log: Arc<dyn Clock>) -> (Arc<Engine>, FileLog) {
    let engine = Arc::new(Engine { clock: clock.clone(), applied: Mutex::default() });
    let applier = Arc::clone(&engine) as Arc<dyn Applier>;
    let files = Arc::new(SimFiles::new(1));
    let log = FileLog::open(files, of_log, Path::new("/log"), applier, FileLogOptions::default()).unwrap();
    log.open_group(GROUP, Lsn(0), InitialConfig::Single).unwrap();
    // The entry of the election is durable, so no fsync is running.
    answer(&answer_of(|done| log.sync(GROUP, done))).unwrap();
    (engine, log)
}

type Answer = Result<Lsn, ProposeError>;

fn answer_of(call: impl FnOnce(rekindle_log::Done)) -> Receiver<Answer> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |result| drop(sender.send(result))));
    receiver
}

fn propose_deferred(log: &FileLog, payload: &'static str, durability: Durability) -> Receiver<Answer> {
    answer_of(|done| {
        log.propose_deferred(GROUP, None, Bytes::from_static(payload.as_bytes()), durability, done)
    })
}

#[track_caller]
fn answer(receiver: &Receiver<Answer>) -> Answer {
    receiver.recv_timeout(WAIT_TIMEOUT).expect("every proposal is answered")
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < WAIT_TIMEOUT, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The clock of a log in which no work falls due.
fn still() -> (SimClock, Arc<dyn Clock>) {
    let clock = SimClock::new();
    (clock.clone(), Arc::new(clock))
}

/// Proposes until an entry is applied on this thread. The log thread may hold the lock at first. If `clock` advanced during
/// a step of that thread, the step was slow, and proposers do not drive the log for a while.
#[track_caller]
fn take_own_turn(engine: &Engine, log: &FileLog, clock: &SimClock, payload: &'static str) {
    let own = std::thread::current().name().unwrap().to_owned();
    wait_until("a step of a proposer", || {
        let receiver = propose_deferred(log, payload, Durability::Soft);
        log.drive();
        answer(&receiver).unwrap();
        let is_own = engine.threads().last() == Some(&own);
        if !is_own {
            clock.advance(Duration::from_secs(2));
        }
        is_own
    });
}

#[test]
fn a_soft_entry_is_carried_out_by_the_proposer_that_drives_the_log() {
    let (clock, of_log) = still();
    let (engine, log) = log_with(&clock, of_log);
    take_own_turn(&engine, &log, &clock, "entry");
    wait_until("one turn for two entries", || {
        let (first, second) =
            (propose_deferred(&log, "1", Durability::Soft), propose_deferred(&log, "2", Durability::Soft));
        let both_lay_there = first.try_recv().is_err() && second.try_recv().is_err();
        log.drive();
        let at_once = first.try_recv().is_ok() && second.try_recv().is_ok();
        both_lay_there && at_once
    });
}

#[test]
fn a_hard_entry_is_left_to_the_log_thread_with_the_whole_inbox() {
    let (clock, of_log) = (SimClock::new(), Arc::new(RealClock::new()));
    let (engine, log) = log_with(&clock, of_log);
    let soft = propose_deferred(&log, "soft", Durability::Soft);
    let hard = propose_deferred(&log, "hard", Durability::Hard);
    log.drive();
    assert!(answer(&soft).unwrap() < answer(&hard).unwrap());
    assert_eq!(engine.threads().last().unwrap(), "log");
}

#[test]
fn entries_that_a_proposer_appended_become_durable_in_time() {
    let clock = SimClock::new();
    let (_engine, log) = log_with(&clock, Arc::new(RealClock::new()));
    // More than one round, so also after the log thread has gone back to sleep. Nothing here wakes it.
    for round in 1..=3 {
        let receiver = propose_deferred(&log, "soft", Durability::Soft);
        log.drive();
        answer(&receiver).unwrap();
        wait_until("the fsync", || log.stats().group_commit_entries >= round);
    }
}

#[test]
fn after_a_slow_step_only_the_log_thread_drives_the_log() {
    let (clock, of_log) = still();
    let (engine, log) = log_with(&clock, of_log);
    take_own_turn(&engine, &log, &clock, "slow");
    for _ in 0..20 {
        let receiver = propose_deferred(&log, "next", Durability::Soft);
        log.drive();
        answer(&receiver).unwrap();
        assert_eq!(engine.threads().last().unwrap(), "log");
    }
    clock.advance(Duration::from_secs(2));
    take_own_turn(&engine, &log, &clock, "entry");
}

#[test]
fn no_caller_waits_for_a_step_that_has_panicked() {
    let (clock, of_log) = still();
    let (engine, log) = log_with(&clock, of_log);
    take_own_turn(&engine, &log, &clock, "entry");
    answer(&answer_of(|done| log.sync(GROUP, done))).unwrap();
    let receiver = propose_deferred(&log, "panic", Durability::Soft);
    // The panic may be on either thread; the result is the same for all other callers.
    drop(catch_unwind(AssertUnwindSafe(|| log.drive())));
    // Its outcome is unknown: the callback is dropped without an answer.
    let dropped = receiver.recv_timeout(WAIT_TIMEOUT);
    assert!(matches!(dropped, Err(mpsc::RecvTimeoutError::Disconnected)), "{dropped:?}");
    for durability in [Durability::Soft, Durability::Hard] {
        let refused = answer(&propose_deferred(&log, "after", durability));
        assert!(matches!(refused, Err(ProposeError::Definite(Refusal::Stopped))), "{refused:?}");
    }
    log.drive();
}

#[test]
fn proposers_on_many_threads_are_all_answered() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 400;
    let clock = SimClock::new();
    let (engine, log) = log_with(&clock, Arc::new(RealClock::new()));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let durability = |nth: usize| match (round + nth + thread).is_multiple_of(97) {
                        true => Durability::Hard,
                        false => Durability::Soft,
                    };
                    let receiver = [0, 1, 2].map(|nth| propose_deferred(log, "entry", durability(nth)));
                    log.drive();
                    let positions = receiver.map(|receiver| answer(&receiver).unwrap());
                    assert!(positions.is_sorted(), "{positions:?}");
                }
            });
        }
    });
    assert_eq!(engine.threads().len(), THREADS * ROUNDS * 3);
}

#[test]
fn a_stopped_log_reports_the_cause() {
    let files = SimFiles::new(1);
    let engine = Arc::new(Engine { clock: SimClock::new(), applied: Mutex::default() });
    let options = FileLogOptions::default();
    let log = FileLog::open(
        Arc::new(files.clone()),
        Arc::new(RealClock::new()),
        Path::new("/log"),
        engine,
        options,
    )
    .unwrap();
    log.open_group(GROUP, Lsn(0), InitialConfig::Single).unwrap();
    // The step that opened the group may not have ended yet.
    wait_until("the log makes progress", || log.stall().is_none());
    files.inject(Fault::Append);
    let receiver =
        answer_of(|done| log.propose_in(GROUP, None, Bytes::from_static(b"entry"), Durability::Hard, done));
    assert!(answer(&receiver).is_err());
    wait_until("the stall is reported", || {
        log.stall().is_some_and(|stall| stall.cause == StallCause::Stopped)
    });
    assert!(matches!(log.stopped(), Some(Interruption::Disk(_))), "{:?}", log.stopped());
}
