//! One node of the simulated fleet: a disk, an engine, and a log while its process runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use io::sim::{SimClock, SimFiles, SimRandom};

use crate::contract::{Applier, Entry, GroupObserver, Message, Transport};
use crate::error::{ApplyError, LogError};
use crate::file::runner::{Environment, FlushJob, FlushPolicy, Runner, SyncJob};
use crate::file::store::{FileStore, StoreOptions};
use crate::log_sync::LogSync;
use crate::lsn::{GroupId, Lsn};
use crate::member::{InitialConfig, PeerId, Role};
use crate::proposal::Proposal;
use crate::store::Store;

pub(super) type Rows = BTreeMap<Lsn, Bytes>;

/// The engine of a node; unflushed rows are lost with the process.
#[derive(Default)]
pub(super) struct Engine {
    pub memory: Mutex<Rows>,
    pub durable: Mutex<Rows>,
    /// The position of the last copy of the rows; entries up to there may have changed no rows.
    pub copied: Mutex<Lsn>,
    /// Entries applied since the last check.
    pub unchecked: Mutex<Vec<(Lsn, Bytes)>>,
    /// Makes the log durable before the rows.
    log: OnceLock<LogSync>,
}

pub(super) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// The position of the rows that would survive a power loss.
    pub fn applied_durably(&self) -> Lsn {
        self.up_to(&hold(&self.durable))
    }

    fn up_to(&self, rows: &Rows) -> Lsn {
        rows.last_key_value().map_or(Lsn(0), |(lsn, _)| *lsn).max(*hold(&self.copied))
    }

    /// Replaces the rows by a copy as of a position.
    pub fn replace(&self, rows: &Rows, at: Lsn) {
        *hold(&self.copied) = at;
        *hold(&self.memory) = rows.clone();
        *hold(&self.durable) = rows.clone();
    }
}

impl Applier for Engine {
    fn apply(&self, entries: &[Entry]) -> Result<(), ApplyError> {
        let (mut rows, mut unchecked) = (hold(&self.memory), hold(&self.unchecked));
        for Entry { lsn, payload, .. } in entries {
            let last = rows.last_key_value().map_or(Lsn(0), |(last, _)| *last);
            if *lsn <= last {
                return Err(ApplyError(format!("{lsn} applied after {last}")));
            }
            rows.insert(*lsn, payload.clone());
            unchecked.push((*lsn, payload.clone()));
        }
        Ok(())
    }

    fn applied(&self, _group: GroupId) -> Lsn {
        self.up_to(&hold(&self.memory))
    }

    fn durable(&self, groups: &[GroupId]) -> Vec<Lsn> {
        vec![self.applied_durably(); groups.len()]
    }

    fn set_log_sync(&self, log: LogSync) {
        assert!(self.log.set(log).is_ok(), "called once");
    }

    fn flush(&self) -> Result<(), ApplyError> {
        let synced = self.log.get().map_or(Ok(()), LogSync::sync);
        synced.map_err(|cause| ApplyError(cause.to_string()))?;
        *hold(&self.durable) = hold(&self.memory).clone();
        Ok(())
    }
}

/// An event that a log reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    RoleChanged(Role),
    SnapshotNeeded(PeerId),
    RowsNeeded,
    Removed,
}

/// The messages and events of a node that were not handled yet.
#[derive(Default)]
pub(super) struct Outbox {
    pub messages: Mutex<Vec<Message>>,
    pub events: Mutex<Vec<Event>>,
}

impl Transport for Outbox {
    fn send(&self, messages: Vec<Message>) {
        hold(&self.messages).extend(messages);
    }
}

impl GroupObserver for Outbox {
    fn role_changed(&self, _id: GroupId, role: Role) {
        hold(&self.events).push(Event::RoleChanged(role));
    }
    fn snapshot_needed(&self, _id: GroupId, to: PeerId) {
        hold(&self.events).push(Event::SnapshotNeeded(to));
    }
    fn rows_needed(&self, _id: GroupId) {
        hold(&self.events).push(Event::RowsNeeded);
    }
    fn removed(&self, _id: GroupId) {
        hold(&self.events).push(Event::Removed);
    }
}

/// A running process.
pub(super) struct Process {
    pub runner: Runner<FileStore>,
    pub syncing: Option<(SyncJob, Option<std::io::Result<()>>)>,
    pub flushing: Option<FlushJob>,
    pub inbox: Vec<Proposal>,
}

/// A node of the fleet.
pub(super) struct Node {
    pub files: SimFiles,
    pub engine: Arc<Engine>,
    pub outbox: Arc<Outbox>,
    /// Its replica of the group, if it has one.
    pub peer: Option<PeerId>,
    pub initial: InitialConfig,
    pub process: Option<Process>,
    pub role: Option<Role>,
    pub needs_rows: bool,
    /// Its rows were ahead of its log when it started last.
    pub rows_are_ahead: bool,
}

impl Node {
    /// A node that was never started, with an empty disk.
    pub fn new(seed: u64) -> Node {
        Node {
            files: SimFiles::new(seed),
            engine: Arc::default(),
            outbox: Arc::default(),
            peer: None,
            initial: InitialConfig::Single,
            process: None,
            role: None,
            needs_rows: false,
            rows_are_ahead: false,
        }
    }

    /// Starts the process, and opens its replica if it has one.
    pub fn start(&mut self, group: GroupId, clock: &SimClock, random: &SimRandom) -> Result<(), LogError> {
        let (durable, at) = (hold(&self.engine.durable).clone(), *hold(&self.engine.copied));
        self.engine = Arc::default();
        self.engine.replace(&durable, at);
        self.outbox = Arc::default();
        let random: Arc<dyn io::Random> = Arc::new(random.clone());
        let options = StoreOptions { segment_bytes: 4096 };
        let store =
            FileStore::open(Arc::new(self.files.clone()), Arc::clone(&random), Path::new("/log"), options)?;
        let last =
            store.group(group).filter(|stored| !stored.rows_invalid).map(|stored| stored.outline.last());
        self.rows_are_ahead = last.is_some_and(|last| self.engine.applied_durably().0 > last);
        self.engine.set_log_sync(store.log_sync());
        let environment = Environment {
            applier: Arc::clone(&self.engine) as Arc<dyn Applier>,
            clock: Arc::new(clock.clone()),
            random,
            transport: Arc::clone(&self.outbox) as Arc<dyn Transport>,
            observer: Arc::clone(&self.outbox) as Arc<dyn GroupObserver>,
        };
        let policy = FlushPolicy {
            soft_wait: std::time::Duration::from_millis(100),
            log_bytes_max: 20_000,
            replay_bytes_max: 10_000,
            flush_interval: std::time::Duration::from_secs(1),
        };
        let mut runner = Runner::new(store, environment, policy);
        (self.role, self.needs_rows) = (None, false);
        if self.peer.is_some() {
            runner.open_group(group, self.engine.applied_durably(), &self.initial)?;
        }
        self.process = Some(Process { runner, syncing: None, flushing: None, inbox: Vec::new() });
        Ok(())
    }

    /// Ends the running fsync, if there is one.
    pub fn end_sync(&mut self) {
        let Some(process) = &mut self.process else { return };
        if let Some((job, ran)) = process.syncing.take() {
            let result = ran.unwrap_or_else(|| job.run());
            process.runner.end_sync(job, result);
        }
    }
}
