//! Helpers of these tests, and their only use of the API: an engine, a log, shards over them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use datum::{Datum, KeyRange, Object, PrimaryKey, Text};
use engine::memory::MemoryEngine;
use log::memory::{MemoryEntries, MemoryLog};
use log::{
    Acks, Done, Durability, GroupId, GroupStatus, InitialConfig, Log, LogBase, LogBaseDone, LogError,
    LogStats, Lsn, MemberChange, Members, Message, PeerId, Refusal, Term,
};
use parking_lot::Mutex;
use rekindle_shard::{Decision, Direction, Replicas, Shard, WriteError, WriteTicket};
use storage::TableId;

pub const TABLE: TableId = TableId::from_uuid(uuid::Uuid::from_u128(0x7ab1e));
pub const GROUP: GroupId = GroupId(1);

pub fn key(value: impl Into<Datum>) -> PrimaryKey {
    PrimaryKey::encode(&value.into()).unwrap()
}

pub fn row(n: f64) -> Object {
    [(Text::from("n"), Datum::Number(n))].into_iter().collect()
}

pub fn number(row: &Object) -> f64 {
    match row.get("n") {
        Some(Datum::Number(n)) => n,
        other => panic!("not a test row: {other:?}"),
    }
}

/// Puts `n`; returns the old value.
pub fn put(shard: &Shard, name: &str, n: f64) -> (Option<f64>, WriteTicket) {
    let decide = |old: Option<&Object>| (Decision::Put(row(n)), old.map(number));
    shard.write(&key(name), Durability::Soft, decide).unwrap()
}

/// Adds one to a row that begins at zero; returns the sum.
pub fn increment(shard: &Shard, name: &str) -> (f64, WriteTicket) {
    let decide = |old: Option<&Object>| {
        let sum = old.map_or(0.0, number) + 1.0;
        (Decision::Put(row(sum)), sum)
    };
    shard.write(&key(name), Durability::Hard, decide).unwrap()
}

pub fn delete(shard: &Shard, name: &str) -> WriteTicket {
    let decide = |_: Option<&Object>| (Decision::Delete, ());
    shard.write(&key(name), Durability::Soft, decide).unwrap().1
}

pub fn read(shard: &Shard, name: &str) -> Option<f64> {
    shard.get(&key(name)).unwrap().as_ref().map(number)
}

/// All rows of a shard, by a scan; the count must agree with it.
pub fn content(shard: &Shard) -> BTreeMap<PrimaryKey, f64> {
    let snapshot = shard.snapshot().unwrap();
    let mut scan = snapshot.scan(&KeyRange::all(), Direction::Ascending);
    let mut rows = BTreeMap::new();
    while let Some((key, row)) = scan.next().unwrap() {
        rows.insert(key, number(&row));
    }
    assert_eq!(shard.count(), rows.len() as u64, "the count is the number of rows");
    assert_eq!(snapshot.count().unwrap(), rows.len() as u64, "in the snapshot too");
    rows
}

/// A machine that can be switched off; `engine` and `disk` keep their content.
pub struct Bed {
    pub engine: MemoryEngine,
    pub disk: MemoryEntries,
    pub replicas: Arc<Replicas>,
    pub log: Arc<TestLog>,
}

impl Bed {
    /// A log with its own thread.
    pub fn running() -> Bed {
        Bed::over(MemoryEngine::new(), MemoryEntries::default(), MemoryLog::open)
    }

    /// A log that only works when it is stepped.
    pub fn stepped() -> Bed {
        Bed::over(MemoryEngine::new(), MemoryEntries::default(), MemoryLog::stepped)
    }

    pub fn over(
        engine: MemoryEngine,
        disk: MemoryEntries,
        open: impl Fn(MemoryEntries, Arc<dyn log::Applier>) -> MemoryLog,
    ) -> Bed {
        let replicas = Replicas::with_row_cache(Arc::new(engine.clone()), 1 << 20).unwrap();
        let inner = open(disk.clone(), Arc::clone(&replicas) as _);
        let log = TestLog::over(inner);
        Bed { engine, disk, replicas, log: Arc::new(log) }
    }

    pub fn shard(&self) -> Arc<Shard> {
        self.shard_of(GROUP, KeyRange::all())
    }

    pub fn shard_of(&self, group: GroupId, range: KeyRange) -> Arc<Shard> {
        Shard::open(&self.replicas, Arc::clone(&self.log) as _, TABLE, group, range, InitialConfig::Single)
            .unwrap()
    }

    /// Switches the machine off and on: the engine keeps its last flush, the log everything.
    pub fn crash(self) -> Bed {
        drop(self.log);
        Bed::over(self.engine.after_crash(), self.disk, MemoryLog::open)
    }
}

/// A log that refuses the proposals that a test names, counted from 0.
pub struct TestLog {
    inner: MemoryLog,
    refuse: Mutex<BTreeSet<usize>>,
    proposed: Mutex<usize>,
    refused: Mutex<Vec<Done>>,
    stopped: AtomicBool,
}

impl TestLog {
    fn over(inner: MemoryLog) -> TestLog {
        TestLog {
            inner,
            refuse: Mutex::default(),
            proposed: Mutex::default(),
            refused: Mutex::default(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Refuses every proposal at once from now on, on the proposer's thread.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    pub fn refuse(&self, proposals: impl IntoIterator<Item = usize>) {
        self.refuse.lock().extend(proposals);
    }

    /// The number of proposals so far.
    pub fn proposed(&self) -> usize {
        *self.proposed.lock()
    }

    /// Resolves the refused proposals.
    pub fn tell_refusals(&self) {
        let refused = std::mem::take(&mut *self.refused.lock());
        for done in refused {
            done(Err(Refusal::Full.into()));
        }
    }

    /// Applies and resolves the accepted proposals.
    pub fn step(&self) -> usize {
        self.inner.step()
    }
}

impl Log for TestLog {
    fn open_group(&self, id: GroupId, applied: Lsn, birth: InitialConfig) -> Result<(), LogError> {
        self.inner.open_group(id, applied, birth)
    }

    fn close_group(&self, id: GroupId) -> Result<(), LogError> {
        self.inner.close_group(id)
    }

    fn leave_group(&self, id: GroupId) -> Result<(), LogError> {
        self.inner.leave_group(id)
    }

    fn propose_in(&self, id: GroupId, term: Option<Term>, entry: Bytes, durability: Durability, done: Done) {
        if self.stopped.load(Ordering::SeqCst) {
            return done(Err(Refusal::Stopped.into()));
        }
        let number = {
            let mut proposed = self.proposed.lock();
            *proposed += 1;
            *proposed - 1
        };
        if self.refuse.lock().remove(&number) {
            self.refused.lock().push(done);
        } else {
            self.inner.propose_in(id, term, entry, durability, done);
        }
    }

    fn set_acks(&self, id: GroupId, acks: Acks) {
        self.inner.set_acks(id, acks);
    }

    fn sync(&self, id: GroupId, done: Done) {
        self.inner.sync(id, done);
    }

    fn receive(&self, letter: Message) {
        Log::receive(&self.inner, letter);
    }

    fn read_index(&self, id: GroupId, done: Done) {
        self.inner.read_index(id, done);
    }

    fn change_members(&self, id: GroupId, change: MemberChange, done: Done) {
        self.inner.change_members(id, change, done);
    }

    fn transfer(&self, id: GroupId, to: PeerId) {
        self.inner.transfer(id, to);
    }

    fn campaign(&self, id: GroupId) {
        self.inner.campaign(id);
    }

    fn peers_unreachable(&self, peers: Vec<PeerId>) {
        self.inner.peers_unreachable(peers);
    }

    fn peers_reachable(&self, peers: Vec<PeerId>) {
        self.inner.peers_reachable(peers);
    }

    fn log_base(&self, id: GroupId, at: Lsn, done: LogBaseDone) {
        self.inner.log_base(id, at, done);
    }

    fn begin_restore(&self, id: GroupId) -> Result<(), LogError> {
        self.inner.begin_restore(id)
    }

    fn finish_restore(&self, id: GroupId, origin: LogBase) -> Result<(), LogError> {
        self.inner.finish_restore(id, origin)
    }

    fn reset_members(&self, id: GroupId, members: Members) -> Result<Members, LogError> {
        self.inner.reset_members(id, members)
    }

    fn group_statuses(&self, ids: &[GroupId]) -> Result<Vec<Option<GroupStatus>>, LogError> {
        self.inner.group_statuses(ids)
    }

    fn stats(&self) -> LogStats {
        self.inner.stats()
    }
}

#[track_caller]
pub fn assert_definite(outcome: Result<Lsn, WriteError>) {
    assert!(matches!(outcome, Err(WriteError::Definite { .. })), "{outcome:?}");
}
