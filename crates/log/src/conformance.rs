//! The contract of [`Log`] as a suite that every implementation runs.
//!
//! ```
//! # use std::sync::Arc;
//! use rekindle_log::conformance::{self, Disk};
//! use rekindle_log::memory::{MemoryEntries, MemoryLog};
//!
//! struct Memory(MemoryEntries);
//! impl Disk for Memory {
//!     fn start(&self, applier: Arc<dyn rekindle_log::Applier>) -> Arc<dyn rekindle_log::Log> {
//!         Arc::new(MemoryLog::open(self.0.clone(), applier))
//!     }
//! }
//! conformance::run(|| Memory(MemoryEntries::default()));
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::contract::{Applier, Entry, Log};
use crate::error::{ApplyError, LogError, ProposeError, Refusal};
use crate::lsn::{Durability, GroupId, Lsn};
use crate::member::InitialConfig;

const ONE: GroupId = GroupId(1);
const TWO: GroupId = GroupId(2);

/// Storage that outlives a log: a log started on it finds the entries of the log before.
pub trait Disk {
    /// Starts a log. The previous one has been dropped.
    fn start(&self, applier: Arc<dyn Applier>) -> Arc<dyn Log>;
}

/// Runs the suite, each case on a separate disk. Panics on the first violation.
pub fn run<D: Disk>(new_disk: impl Fn() -> D) {
    entries_are_applied_in_order_and_then_answered(&new_disk());
    hard_and_soft_entries_of_a_group_keep_their_order(&new_disk());
    a_group_that_is_not_open_refuses_proposals(&new_disk());
    a_group_opens_once(&new_disk());
    a_restart_replays_entries_that_the_engine_lacks(&new_disk());
    positions_grow_across_restarts(&new_disk());
    a_closed_group_stays_closed(&new_disk());
    closing_one_group_leaves_the_others(&new_disk());
    a_sync_is_answered_after_everything_before_it(&new_disk());
    a_log_behind_the_engine_continues_after_it(&new_disk());
    dropping_the_log_finishes_proposals(&new_disk());
    proposers_on_many_threads_are_all_answered(&new_disk());
    deferred_entries_keep_their_order_and_are_answered(&new_disk());
}

/// An engine that records all entries.
#[derive(Default)]
struct Engine {
    groups: Mutex<BTreeMap<GroupId, Vec<(Lsn, Bytes)>>>,
}

impl Engine {
    fn groups(&self) -> MutexGuard<'_, BTreeMap<GroupId, Vec<(Lsn, Bytes)>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries(&self, group: GroupId) -> Vec<(Lsn, Bytes)> {
        self.groups().get(&group).cloned().unwrap_or_default()
    }

    fn payloads(&self, group: GroupId) -> Vec<Bytes> {
        self.entries(group).into_iter().map(|(_, payload)| payload).collect()
    }
}

impl Applier for Engine {
    fn apply(&self, entries: &[Entry]) -> Result<(), ApplyError> {
        let mut groups = self.groups();
        for Entry { group, lsn, payload } in entries {
            let log = groups.entry(*group).or_default();
            let last = log.last().map_or(Lsn(0), |(last, _)| *last);
            assert!(*lsn > last, "group {group}: {lsn} was applied after {last}");
            log.push((*lsn, payload.clone()));
        }
        Ok(())
    }

    fn applied(&self, group: GroupId) -> Lsn {
        self.groups().get(&group).and_then(|log| log.last()).map_or(Lsn(0), |(last, _)| *last)
    }

    fn flush(&self) -> Result<(), ApplyError> {
        Ok(())
    }
}

type Answer = Result<Lsn, ProposeError>;

fn propose(log: &dyn Log, group: GroupId, payload: &str, durability: Durability) -> Receiver<Answer> {
    let (sender, answer) = mpsc::channel();
    let payload = Bytes::copy_from_slice(payload.as_bytes());
    log.propose(group, payload, durability, Box::new(move |result| drop(sender.send(result))));
    answer
}

#[track_caller]
fn answer(answer: &Receiver<Answer>) -> Answer {
    answer.recv().expect("every proposal is answered")
}

#[track_caller]
fn position(receiver: &Receiver<Answer>) -> Lsn {
    answer(receiver).expect("the proposal succeeds")
}

#[track_caller]
fn all_succeed(answers: &[Receiver<Answer>]) {
    for receiver in answers {
        position(receiver);
    }
}

#[track_caller]
fn open(log: &dyn Log, group: GroupId, applied: Lsn) {
    log.open_group(group, applied, InitialConfig::Single).expect("the group opens");
}

fn started(disk: &dyn Disk) -> (Arc<Engine>, Arc<dyn Log>) {
    let engine = Arc::new(Engine::default());
    let log = disk.start(Arc::clone(&engine) as Arc<dyn Applier>);
    (engine, log)
}

fn entries_are_applied_in_order_and_then_answered(disk: &dyn Disk) {
    let (engine, log) = started(disk);
    open(&*log, ONE, Lsn(0));
    let mut last = Lsn(0);
    for nth in 0..20 {
        let lsn = position(&propose(&*log, ONE, &nth.to_string(), Durability::Hard));
        assert!(lsn > last, "{lsn} after {last}");
        assert_eq!(engine.applied(ONE), lsn, "an answer comes after the entry is applied");
        last = lsn;
    }
    assert_eq!(engine.payloads(ONE), (0..20).map(|nth| nth.to_string()).collect::<Vec<_>>());
}

fn hard_and_soft_entries_of_a_group_keep_their_order(disk: &dyn Disk) {
    let (engine, log) = started(disk);
    open(&*log, ONE, Lsn(0));
    open(&*log, TWO, Lsn(0));
    let mut answers = Vec::new();
    for nth in 0..200 {
        let durability = if nth % 3 == 0 { Durability::Hard } else { Durability::Soft };
        let group = if nth % 2 == 0 { ONE } else { TWO };
        answers.push((group, propose(&*log, group, &nth.to_string(), durability)));
    }
    let mut last = BTreeMap::from([(ONE, Lsn(0)), (TWO, Lsn(0))]);
    for (group, receiver) in &answers {
        let lsn = position(receiver);
        let before = last.insert(*group, lsn).expect("invariant: both groups are there");
        assert!(lsn > before, "{lsn} after {before}");
    }
    let even: Vec<_> = (0..200).step_by(2).map(|nth| nth.to_string()).collect();
    assert_eq!(engine.payloads(ONE), even);
    assert_eq!(engine.payloads(TWO).len(), 100);
}

fn a_group_that_is_not_open_refuses_proposals(disk: &dyn Disk) {
    let (engine, log) = started(disk);
    open(&*log, ONE, Lsn(0));
    let refused = answer(&propose(&*log, TWO, "lost", Durability::Hard));
    assert!(matches!(refused, Err(ProposeError::Definite(Refusal::NotOpen(TWO)))), "{refused:?}");
    assert!(engine.payloads(TWO).is_empty());
    assert!(matches!(log.close_group(TWO), Err(LogError::NotOpen(TWO))));
}

fn a_group_opens_once(disk: &dyn Disk) {
    let (_, log) = started(disk);
    open(&*log, ONE, Lsn(0));
    assert!(matches!(log.open_group(ONE, Lsn(0), InitialConfig::Single), Err(LogError::AlreadyOpen(ONE))));
}

fn a_restart_replays_entries_that_the_engine_lacks(disk: &dyn Disk) {
    let (engine, log) = started(disk);
    open(&*log, ONE, Lsn(0));
    open(&*log, TWO, Lsn(0));
    let mut answers = Vec::new();
    for nth in 0..50 {
        answers.push(propose(&*log, ONE, &format!("one {nth}"), Durability::Soft));
        answers.push(propose(&*log, TWO, &format!("two {nth}"), Durability::Hard));
    }
    all_succeed(&answers);
    drop(log);
    let before = engine.entries(ONE);

    let (engine, log) = started(disk);
    let (applied, _) = before[19];
    open(&*log, ONE, applied);
    assert_eq!(engine.entries(ONE), before[20..], "the rest, at the same positions");
    open(&*log, TWO, Lsn(0));
    assert_eq!(engine.payloads(TWO).len(), 50, "everything");
    drop(log);

    let (engine, log) = started(disk);
    open(&*log, ONE, before[49].0);
    assert!(engine.entries(ONE).is_empty(), "nothing is replayed that the engine has");
}

fn positions_grow_across_restarts(disk: &dyn Disk) {
    let mut last = Lsn(0);
    for nth in 0..5 {
        let (_, log) = started(disk);
        open(&*log, ONE, last);
        let lsn = position(&propose(&*log, ONE, &nth.to_string(), Durability::Hard));
        assert!(lsn > last, "{lsn} after {last}");
        last = lsn;
    }
}

fn a_closed_group_stays_closed(disk: &dyn Disk) {
    let (engine, log) = started(disk);
    open(&*log, ONE, Lsn(0));
    let before = propose(&*log, ONE, "before", Durability::Soft);
    log.close_group(ONE).expect("the group closes");
    position(&before);
    assert_eq!(engine.payloads(ONE), ["before"], "earlier proposals are finished");
    let after = answer(&propose(&*log, ONE, "after", Durability::Soft));
    assert!(after.is_err_and(|cause| cause.is_definite()));
    assert!(matches!(log.open_group(ONE, Lsn(0), InitialConfig::Single), Err(LogError::Tombstone(ONE))));
    drop(log);

    let (_, log) = started(disk);
    assert!(matches!(log.open_group(ONE, Lsn(0), InitialConfig::Single), Err(LogError::Tombstone(ONE))));
}

fn closing_one_group_leaves_the_others(disk: &dyn Disk) {
    let (engine, log) = started(disk);
    open(&*log, ONE, Lsn(0));
    open(&*log, TWO, Lsn(0));
    position(&propose(&*log, TWO, "first", Durability::Hard));
    log.close_group(ONE).expect("the group closes");
    position(&propose(&*log, TWO, "second", Durability::Hard));
    assert_eq!(engine.payloads(TWO), ["first", "second"]);
    drop(log);

    let (engine, log) = started(disk);
    open(&*log, TWO, Lsn(0));
    assert_eq!(engine.payloads(TWO), ["first", "second"]);
}

fn a_sync_is_answered_after_everything_before_it(disk: &dyn Disk) {
    let (engine, log) = started(disk);
    open(&*log, ONE, Lsn(0));
    let soft: Vec<_> = (0..10).map(|nth| propose(&*log, ONE, &nth.to_string(), Durability::Soft)).collect();
    for _ in 0..2 {
        let (sender, synced) = mpsc::channel();
        log.sync(ONE, Box::new(move |result| drop(sender.send(result))));
        let synced = position(&synced);
        assert_eq!(engine.payloads(ONE).len(), 10);
        assert!(synced >= engine.applied(ONE));
    }
    all_succeed(&soft);
}

fn a_log_behind_the_engine_continues_after_it(disk: &dyn Disk) {
    let (_, log) = started(disk);
    open(&*log, ONE, Lsn(0));
    let known = position(&propose(&*log, ONE, "known", Durability::Hard));
    drop(log);

    let ahead = Lsn(known.0 + 1000);
    let (engine, log) = started(disk);
    open(&*log, ONE, ahead);
    assert!(engine.entries(ONE).is_empty(), "entries that the engine has are not replayed");
    let next = position(&propose(&*log, ONE, "next", Durability::Hard));
    assert!(next > ahead, "{next} after {ahead}");
    drop(log);

    let (engine, log) = started(disk);
    open(&*log, ONE, ahead);
    assert_eq!(engine.entries(ONE), [(next, Bytes::from_static(b"next"))]);
}

fn dropping_the_log_finishes_proposals(disk: &dyn Disk) {
    let (engine, log) = started(disk);
    open(&*log, ONE, Lsn(0));
    let hard: Vec<_> = (0..100).map(|nth| propose(&*log, ONE, &nth.to_string(), Durability::Hard)).collect();
    drop(log);
    all_succeed(&hard);
    assert_eq!(engine.payloads(ONE).len(), 100);
}

fn proposers_on_many_threads_are_all_answered(disk: &dyn Disk) {
    const THREADS: u64 = 4;
    const EACH: u64 = 500;
    let (engine, log) = started(disk);
    for group in 0..THREADS {
        open(&*log, GroupId(group), Lsn(0));
    }
    let answered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, answered) = (&*log, &answered);
            scope.spawn(move || {
                for nth in 0..EACH {
                    let group = GroupId((thread + nth) % THREADS);
                    position(&propose(log, group, "entry", Durability::Soft));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(answered.into_inner(), THREADS * EACH);
    let applied: usize = (0..THREADS).map(|group| engine.entries(GroupId(group)).len()).sum();
    assert_eq!(applied as u64, THREADS * EACH);
    // Counters are published after the answers of a step: this call makes one more step pass.
    assert!(log.open_group(GroupId(0), Lsn(0), InitialConfig::Single).is_err());
    let stats = log.stats();
    assert_eq!((stats.appends, stats.acks_soft), (THREADS * EACH, THREADS * EACH));
    assert_eq!(stats.groups, THREADS);
}

fn deferred_entries_keep_their_order_and_are_answered(disk: &dyn Disk) {
    let (engine, log) = started(disk);
    open(&*log, ONE, Lsn(0));
    let mut answers = Vec::new();
    for nth in 0..200 {
        let (sender, answer) = mpsc::channel();
        let payload = Bytes::from(nth.to_string());
        let durability = if nth % 13 == 0 { Durability::Hard } else { Durability::Soft };
        let done = Box::new(move |result| drop(sender.send(result)));
        match nth % 5 {
            0 => log.propose(ONE, payload, durability, done),
            _ => log.propose_deferred(ONE, None, payload, durability, done),
        }
        if nth % 7 == 0 {
            log.drive();
        }
        answers.push(answer);
    }
    log.drive();
    all_succeed(&answers);
    assert_eq!(engine.payloads(ONE), (0..200).map(|nth| nth.to_string()).collect::<Vec<_>>());
}
