//! Thousands of random crashes of one node, and the guarantees that must hold after each. Compiled as a module of the
//! library's unit tests, since it uses the runner.
//!
//! The steps of the log thread run on this thread, over a disk that loses unsynced bytes. Between any two steps the
//! process may end or the power may fail. Then, for every group:
//!
//! - the entries in the engine are a prefix of the proposals that were not refused, in order, each once;
//! - they include every acknowledged hard entry, and after the end of a process every soft one;
//! - a lost entry never comes back, and a refused entry never appears;
//! - the log reaches at least as far as the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use io::sim::{Fault, SimClock, SimFiles, SimRandom};
use io::{Files, Random};

use crate::contract::{Applier, Entry, Noop};
use crate::error::{ApplyError, LogError, ProposeError, Refusal};
use crate::file::runner::{Environment, FlushJob, FlushPolicy, Runner, SyncJob};
use crate::file::store::{FileStore, StoreOptions};
use crate::log_sync::LogSync;
use crate::lsn::{Durability, GroupId, Lsn};
use crate::member::InitialConfig;
#[cfg(not(feature = "ack-before-append"))]
use crate::mutant::{self, Mutant};
use crate::proposal::{Proposal, Work};
use crate::store::Store;

const DIR: &str = "/log";
const STEPS_PER_LIFE: u64 = 60;
const LIVES_PER_SEED: u64 = 20;
const POLICY: FlushPolicy = FlushPolicy { soft_wait: Duration::from_millis(100), log_bytes_max: 20_000 };

/// A deliberate fault, to show that the test detects it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DiskFault {
    None,
    /// The fsync does nothing and reports success.
    LyingSync,
}

type Contents = BTreeMap<GroupId, Vec<(Lsn, Bytes)>>;

/// An engine that loses unflushed rows when the process ends.
#[derive(Default)]
struct Engine {
    tables: Mutex<Tables>,
    log: OnceLock<LogSync>,
}

#[derive(Default, Clone)]
struct Tables {
    memory: Contents,
    durable: Contents,
}

impl Engine {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn restarted(&self) -> Engine {
        let durable = self.tables().durable.clone();
        Engine { tables: Mutex::new(Tables { memory: durable.clone(), durable }), log: OnceLock::new() }
    }
}

impl Applier for Engine {
    fn apply(&self, entries: &[Entry]) -> Result<(), ApplyError> {
        let mut tables = self.tables();
        for Entry { group, lsn, payload } in entries {
            let table = tables.memory.entry(*group).or_default();
            let last = table.last().map_or(Lsn(0), |(last, _)| *last);
            assert!(*lsn > last, "group {group}: {lsn} applied after {last}");
            table.push((*lsn, payload.clone()));
        }
        Ok(())
    }

    fn applied(&self, group: GroupId) -> Lsn {
        let tables = self.tables();
        tables.memory.get(&group).and_then(|table| table.last()).map_or(Lsn(0), |(lsn, _)| *lsn)
    }

    fn set_log_sync(&self, log: LogSync) {
        assert!(self.log.set(log).is_ok(), "called once");
    }

    fn flush(&self) -> Result<(), ApplyError> {
        let synced = self.log.get().map_or(Ok(()), LogSync::sync);
        synced.map_err(|cause| ApplyError(cause.to_string()))?;
        let mut tables = self.tables();
        tables.durable = tables.memory.clone();
        Ok(())
    }
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Finished,
    ProcessGone,
    PowerGone,
}

/// One proposal and its answer.
struct Proposed {
    payload: Bytes,
    durability: Durability,
    answer: Arc<Mutex<Option<Result<Lsn, ProposeError>>>>,
}

impl Proposed {
    fn answer(&self) -> Option<Result<Lsn, ProposeError>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_refused(&self) -> bool {
        matches!(self.answer(), Some(Err(cause)) if cause.is_definite())
    }
}

/// The state that outlives a process.
struct World {
    seed: u64,
    disk_fault: DiskFault,
    files: SimFiles,
    clock: SimClock,
    random: SimRandom,
    engine: Arc<Engine>,
    // The proposals that may still be in the engine, in order.
    history: BTreeMap<GroupId, Vec<Proposed>>,
    open: BTreeSet<GroupId>,
    // Groups not checked since the last power loss.
    power_lost: BTreeSet<GroupId>,
    closed: BTreeSet<GroupId>,
    // Groups whose closing was interrupted.
    in_doubt: BTreeSet<GroupId>,
    next_payload: u64,
    acknowledged: u64,
}

/// The state of a process.
struct Life {
    runner: Runner<FileStore>,
    // The running fsync: with its result if it ran when it began, without if it runs when it ends. A real fsync covers
    // something in between.
    syncing: Option<(SyncJob, Option<std::io::Result<()>>)>,
    flushing: Option<FlushJob>,
    inbox: Vec<Proposal>,
}

impl World {
    fn new(seed: u64, disk_fault: DiskFault) -> World {
        let groups = [GroupId(0), GroupId(7), GroupId(9)];
        World {
            seed,
            disk_fault,
            files: SimFiles::new(seed),
            clock: SimClock::new(),
            random: SimRandom::new(!seed),
            engine: Arc::default(),
            history: groups.map(|group| (group, Vec::new())).into(),
            open: BTreeSet::new(),
            power_lost: BTreeSet::new(),
            closed: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            next_payload: 0,
            acknowledged: 0,
        }
    }

    /// Runs one seed; fails with the first violation.
    fn run(mut self) -> Result<u64, String> {
        let mut end = End::Finished;
        for life in 0..LIVES_PER_SEED {
            let seed = self.seed;
            let broken = |what: String| format!("seed {seed} life {life} {end:?}: {what}");
            let mut alive = self.start().map_err(broken)?;
            for _ in 0..self.random.below(STEPS_PER_LIFE) {
                self.step(&mut alive);
            }
            end = self.end(alive);
        }
        Ok(self.acknowledged)
    }

    fn start(&mut self) -> Result<Life, String> {
        self.engine = Arc::new(self.engine.restarted());
        let files: Arc<dyn Files> = Arc::new(self.files.clone());
        let random: Arc<dyn Random> = Arc::new(self.random.clone());
        let options = StoreOptions { segment_bytes: 4096 };
        let store = FileStore::open(files, Arc::clone(&random), Path::new(DIR), options)
            .map_err(|cause| format!("log does not open: {cause}"))?;
        for group in std::mem::take(&mut self.in_doubt) {
            if store.is_tombstone(group) {
                self.history.remove(&group);
                self.closed.insert(group);
            }
        }
        self.check_log_leads(&store)?;
        self.engine.set_log_sync(store.log_sync());
        let applier = Arc::clone(&self.engine) as Arc<dyn Applier>;
        let clock = Arc::new(self.clock.clone());
        let (transport, observer) = (Arc::new(Noop), Arc::new(Noop));
        let environment = Environment { applier, clock, random, transport, observer };
        let mut runner = Runner::new(store, environment, POLICY);
        // Sometimes one group stays closed during a process: its entries must stay.
        let left_closed = self.random.one_in(4).then(|| self.any_group());
        self.open = self.history.keys().copied().filter(|id| Some(*id) != left_closed).collect();
        for group in &self.open {
            let opened = runner.open_group(*group, self.engine.applied(*group), &InitialConfig::Single);
            opened.map_err(|cause| format!("group {group} does not open: {cause}"))?;
        }
        for group in &self.closed {
            if !matches!(
                runner.open_group(*group, Lsn(0), &InitialConfig::Single),
                Err(LogError::Tombstone(_))
            ) {
                return Err(format!("closed group {group} came back"));
            }
        }
        self.check()?;
        Ok(Life { runner, syncing: None, flushing: None, inbox: Vec::new() })
    }

    /// Rows are never ahead of their log.
    fn check_log_leads(&self, store: &FileStore) -> Result<(), String> {
        let mut groups = self.history.keys();
        let ahead = groups.find(|id| {
            let last = store.group(**id).map_or(0, |stored| stored.outline.last());
            self.engine.applied(**id).0 > last
        });
        ahead.map_or(Ok(()), |id| Err(format!("rows of group {id} are ahead of the log")))
    }

    /// Compares the engine with the proposals, and drops proposals that are permanently lost.
    fn check(&mut self) -> Result<(), String> {
        let tables = self.engine.tables().memory.clone();
        for (group, history) in &mut self.history {
            if !self.open.contains(group) {
                continue;
            }
            history.retain(|proposed| !proposed.is_refused());
            let table = tables.get(group).map_or(&[][..], Vec::as_slice);
            for (nth, (lsn, payload)) in table.iter().enumerate() {
                let Some(proposed) = history.get_mut(nth) else {
                    return Err(format!("group {group}: {payload:?} at {lsn} was never proposed"));
                };
                if proposed.payload != payload {
                    let expected = &proposed.payload;
                    return Err(format!("group {group}: {payload:?} instead of {expected:?}"));
                }
                if let Some(Ok(told)) = proposed.answer()
                    && told != *lsn
                {
                    return Err(format!("group {group}: acknowledged at {told}, is at {lsn}"));
                }
                // Recovered entries are durable from then on.
                proposed.answer = Arc::new(Mutex::new(Some(Ok(*lsn))));
                proposed.durability = Durability::Hard;
            }
            let power_was_lost = self.power_lost.remove(group);
            let kept = table.len().min(history.len());
            for lost in history.drain(kept..) {
                let soft_may_go = lost.durability == Durability::Soft && power_was_lost;
                if lost.answer().is_some_and(|answer| answer.is_ok()) && !soft_may_go {
                    let (durability, payload) = (lost.durability, lost.payload);
                    return Err(format!("group {group}: acknowledged {durability:?} {payload:?} is lost"));
                }
            }
        }
        Ok(())
    }

    fn step(&mut self, life: &mut Life) {
        match self.random.below(24) {
            0..=9 => self.propose(life),
            10..=13 => life.runner.step(&mut life.inbox),
            14 | 15 => self.begin_sync(life),
            16 | 17 => self.end_sync(life),
            18 => {
                self.clock.advance(Duration::from_millis(self.random.below(150)));
                life.runner.tick();
            }
            19 => {
                // Engines also flush without a request of the log. If that fails, nothing was flushed.
                let _ = self.engine.flush();
            }
            20 => life.flushing = life.flushing.take().or_else(|| life.runner.begin_flush()),
            21 => {
                if let Some(job) = life.flushing.take() {
                    let result = self.engine.flush();
                    life.runner.end_flush(&job, result);
                }
            }
            22 => self.propose_sync(life),
            _ => self.rarely(life),
        }
    }

    /// Accidents and other rare events.
    fn rarely(&mut self, life: &mut Life) {
        match self.random.below(12) {
            0 => self.files.inject(Fault::Sync),
            1 => self.files.inject(Fault::Append),
            2 | 3 => self.files.inject(Fault::Full),
            4 => self.files.inject(Fault::Read),
            5 => self.files.inject(Fault::Name),
            6 => self.replace_group(life),
            _ => {}
        }
    }

    fn propose(&mut self, life: &mut Life) {
        let group = self.any_group();
        let durability = if self.random.one_in(2) { Durability::Hard } else { Durability::Soft };
        self.next_payload += 1;
        let filling = self.random.below(300) as usize;
        let payload = Bytes::from(format!("{group}/{}/{}", self.next_payload, "x".repeat(filling)));
        let answer = Arc::new(Mutex::new(None));
        let told = Arc::clone(&answer);
        let done = Box::new(move |result| {
            let before = told.lock().unwrap_or_else(PoisonError::into_inner).replace(result);
            assert!(before.is_none(), "a proposal is answered once");
        });
        life.inbox.push(Proposal { group, term: None, work: Work::Entry(payload.clone(), durability), done });
        self.history.entry(group).or_default().push(Proposed { payload, durability, answer });
    }

    fn propose_sync(&mut self, life: &mut Life) {
        let group = self.any_group();
        let before = self.history.get(&group).into_iter().flatten();
        let before: Vec<_> = before.map(|proposed| Arc::clone(&proposed.answer)).collect();
        let done = Box::new(move |result: Result<Lsn, ProposeError>| {
            let is_answered =
                |answer: &Mutex<Option<_>>| answer.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            let all_answered = before.iter().all(|answer| is_answered(answer));
            assert!(result.is_err() || all_answered, "a sync does not overtake");
        });
        life.inbox.push(Proposal { group, term: None, work: Work::Sync, done });
    }

    fn any_group(&self) -> GroupId {
        let nth = self.random.below(self.history.len() as u64) as usize;
        self.history.keys().nth(nth).copied().unwrap_or(GroupId(0))
    }

    fn begin_sync(&self, life: &mut Life) {
        if let Some(job) = life.runner.begin_sync() {
            let now = self.random.one_in(2).then(|| self.run_sync(&job));
            life.syncing = Some((job, now));
        }
    }

    fn run_sync(&self, job: &SyncJob) -> std::io::Result<()> {
        match self.disk_fault {
            DiskFault::LyingSync => Ok(()),
            DiskFault::None => job.run(),
        }
    }

    fn end_sync(&self, life: &mut Life) {
        if let Some((job, ran)) = life.syncing.take() {
            let result = ran.unwrap_or_else(|| self.run_sync(&job));
            life.runner.end_sync(job, result);
        }
    }

    /// Closes a group and creates another, as if a table were dropped and created.
    fn replace_group(&mut self, life: &mut Life) {
        self.end_sync(life);
        life.runner.step(&mut life.inbox);
        let group = self.any_group();
        let closed = life.runner.close_group(group);
        if closed.is_ok() {
            self.history.remove(&group);
            self.open.remove(&group);
            self.closed.insert(group);
        } else if self.open.contains(&group) && life.runner.group_status(group).is_err() {
            // The disk is full or has failed: the next start finds the group open or closed.
            self.in_doubt.insert(group);
        }
        let next = GroupId(100 + self.closed.len() as u64 * 10 + self.random.below(10));
        let is_new = !self.closed.contains(&next) && !self.history.contains_key(&next);
        if is_new && life.runner.open_group(next, Lsn(0), &InitialConfig::Single).is_ok() {
            self.history.entry(next).or_default();
            self.open.insert(next);
        }
    }

    fn end(&mut self, mut life: Life) -> End {
        let end = match self.random.below(3) {
            0 => End::Finished,
            1 => End::ProcessGone,
            _ => End::PowerGone,
        };
        // Proposals that did not reach the log thread count as refused.
        for proposal in life.inbox.drain(..) {
            (proposal.done)(Err(Refusal::Stopped.into()));
        }
        if end == End::Finished {
            self.end_sync(&mut life);
            life.runner.finish();
        }
        let acks = life.runner.stats();
        self.acknowledged += acks.acks_hard + acks.acks_soft;
        match end {
            End::PowerGone => {
                self.files.crash();
                self.power_lost = self.history.keys().copied().collect();
            }
            End::Finished | End::ProcessGone => self.files.end_process(),
        }
        end
    }
}

fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("LOG_SIM_SEEDS").ok().and_then(|count| count.parse().ok());
    let start = std::env::var("LOG_SIM_START").ok().and_then(|start| start.parse().ok());
    let start = start.unwrap_or(0);
    start..start + count.unwrap_or(400)
}

#[test]
#[cfg(not(feature = "ack-before-append"))]
fn no_acknowledged_entry_is_lost_in_any_crash() {
    let mut acknowledged = 0;
    for seed in seeds() {
        acknowledged += World::new(seed, DiskFault::None)
            .run()
            .unwrap_or_else(|broken| panic!("{broken}; again with LOG_SIM_START={seed} LOG_SIM_SEEDS=1"));
    }
    let lives = seeds().count() as u64 * LIVES_PER_SEED;
    assert!(acknowledged > lives, "{acknowledged} acknowledged in {lives} lives");
}

#[test]
fn a_lying_fsync_is_detected() {
    let detected = (0..50).filter(|seed| World::new(*seed, DiskFault::LyingSync).run().is_err());
    assert!(detected.count() > 10);
}

#[test]
#[cfg(not(feature = "ack-before-append"))]
fn rows_that_do_not_wait_for_the_log_are_detected() {
    mutant::set(Mutant::FlushUnsynced);
    let broken: Vec<String> =
        (0..50).filter_map(|seed| World::new(seed, DiskFault::None).run().err()).collect();
    mutant::set(Mutant::None);
    assert!(broken.len() > 10, "{}", broken.len());
    assert!(broken.iter().all(|what| what.ends_with("ahead of the log")), "{broken:?}");
}

#[test]
#[cfg(feature = "ack-before-append")]
fn an_answer_before_the_append_is_detected() {
    let detected = (0..50).filter(|seed| World::new(*seed, DiskFault::None).run().is_err());
    assert!(detected.count() > 10);
}

#[test]
#[cfg(not(feature = "ack-before-append"))]
fn an_idle_log_stops_writing() {
    let mut world = World::new(1, DiskFault::None);
    let mut life = world.start().expect("an empty log opens");
    for _ in 0..20 {
        world.propose(&mut life);
        life.runner.step(&mut life.inbox);
    }
    let mut syncs = Vec::new();
    for _ in 0..40 {
        world.clock.advance(Duration::from_secs(1));
        life.runner.tick();
        world.begin_sync(&mut life);
        world.end_sync(&mut life);
        syncs.push(life.runner.stats().fsyncs);
    }
    assert!(syncs[0] > 0, "{syncs:?}");
    assert_eq!(syncs[10], syncs[39], "nothing more was written: {syncs:?}");
}
