//! One node of the simulated fleet: a disk, an engine, and, while its process lives, a log.

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

/// What a node's engine holds; what was not flushed is lost with the process.
#[derive(Default)]
pub(super) struct Engine {
    pub memory: Mutex<Rows>,
    pub durable: Mutex<Rows>,
    // Up to where the rows were those of a copy when they came: its last entries may be none of rows.
    pub copied: Mutex<Lsn>,
    // Everything applied since the last look.
    pub news: Mutex<Vec<(Lsn, Bytes)>>,
    // The log, which is to be durable before the rows.
    log: OnceLock<LogSync>,
}

pub(super) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Up to where the rows would survive a power loss.
    pub fn applied_durably(&self) -> Lsn {
        self.up_to(&hold(&self.durable))
    }

    fn up_to(&self, rows: &Rows) -> Lsn {
        rows.last_key_value().map_or(Lsn(0), |(lsn, _)| *lsn).max(*hold(&self.copied))
    }

    /// The rows become a copy of others, which is as they are at a position.
    pub fn replace(&self, rows: &Rows, at: Lsn) {
        *hold(&self.copied) = at;
        *hold(&self.memory) = rows.clone();
        *hold(&self.durable) = rows.clone();
    }
}

impl Applier for Engine {
    fn apply(&self, entries: &[Entry]) -> Result<(), ApplyError> {
        let (mut rows, mut news) = (hold(&self.memory), hold(&self.news));
        for (_, lsn, payload) in entries {
            let last = rows.last_key_value().map_or(Lsn(0), |(last, _)| *last);
            if *lsn <= last {
                return Err(ApplyError(format!("{lsn} applied after {last}")));
            }
            rows.insert(*lsn, payload.clone());
            news.push((*lsn, payload.clone()));
        }
        Ok(())
    }

    fn applied(&self, _group: GroupId) -> Lsn {
        self.up_to(&hold(&self.memory))
    }

    fn set_log_sync(&self, log: LogSync) {
        assert!(self.log.set(log).is_ok(), "told once");
    }

    fn flush(&self) -> Result<(), ApplyError> {
        let hardened = self.log.get().map_or(Ok(()), LogSync::sync);
        hardened.map_err(|cause| ApplyError(cause.to_string()))?;
        *hold(&self.durable) = hold(&self.memory).clone();
        Ok(())
    }
}

/// What a log tells the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Role(Role),
    WantsSnapshot(PeerId),
    NeedsRows,
    Removed,
}

/// Messages that leave a node, and what it tells.
#[derive(Default)]
pub(super) struct Post {
    pub messages: Mutex<Vec<Message>>,
    pub events: Mutex<Vec<Event>>,
}

impl Transport for Post {
    fn send(&self, messages: Vec<Message>) {
        hold(&self.messages).extend(messages);
    }
}

impl GroupObserver for Post {
    fn role_changed(&self, _id: GroupId, role: Role) {
        hold(&self.events).push(Event::Role(role));
    }
    fn snapshot_needed(&self, _id: GroupId, to: PeerId) {
        hold(&self.events).push(Event::WantsSnapshot(to));
    }
    fn rows_needed(&self, _id: GroupId) {
        hold(&self.events).push(Event::NeedsRows);
    }
    fn removed(&self, _id: GroupId) {
        hold(&self.events).push(Event::Removed);
    }
}

/// What is true while a process lives.
pub(super) struct Life {
    pub runner: Runner<FileStore>,
    pub syncing: Option<(SyncJob, Option<std::io::Result<()>>)>,
    pub flushing: Option<FlushJob>,
    pub inbox: Vec<Proposal>,
}

/// A node of the fleet.
pub(super) struct Node {
    pub files: SimFiles,
    pub engine: Arc<Engine>,
    pub post: Arc<Post>,
    /// Its replica of the group, if it has one.
    pub peer: Option<PeerId>,
    pub initial: InitialConfig,
    pub life: Option<Life>,
    pub role: Option<Role>,
    pub needs_rows: bool,
    /// Its rows went further than its log when it started last.
    pub rows_are_ahead: bool,
}

impl Node {
    /// A node that was never started, with a disk of its own.
    pub fn new(seed: u64) -> Node {
        Node {
            files: SimFiles::new(seed),
            engine: Arc::default(),
            post: Arc::default(),
            peer: None,
            initial: InitialConfig::Single,
            life: None,
            role: None,
            needs_rows: false,
            rows_are_ahead: false,
        }
    }

    /// The process starts; its group opens, if it has one.
    pub fn start(&mut self, group: GroupId, clock: &SimClock, random: &SimRandom) -> Result<(), LogError> {
        let (durable, at) = (hold(&self.engine.durable).clone(), *hold(&self.engine.copied));
        self.engine = Arc::default();
        self.engine.replace(&durable, at);
        self.post = Arc::default();
        let random: Arc<dyn io::Random> = Arc::new(random.clone());
        let options = StoreOptions { segment_bytes: 4096 };
        let store =
            FileStore::open(Arc::new(self.files.clone()), Arc::clone(&random), Path::new("/log"), options)?;
        let last = store.group(group).filter(|stored| !stored.void).map(|stored| stored.outline.last());
        self.rows_are_ahead = last.is_some_and(|last| self.engine.applied_durably().0 > last);
        self.engine.set_log_sync(store.log_sync());
        let environment = Environment {
            applier: Arc::clone(&self.engine) as Arc<dyn Applier>,
            clock: Arc::new(clock.clone()),
            random,
            transport: Arc::clone(&self.post) as Arc<dyn Transport>,
            observer: Arc::clone(&self.post) as Arc<dyn GroupObserver>,
        };
        let policy = FlushPolicy { soft_wait: std::time::Duration::from_millis(100), log_bytes_max: 20_000 };
        let mut runner = Runner::new(store, environment, policy);
        (self.role, self.needs_rows) = (None, false);
        if self.peer.is_some() {
            runner.open_group(group, self.engine.applied_durably(), &self.initial)?;
        }
        self.life = Some(Life { runner, syncing: None, flushing: None, inbox: Vec::new() });
        Ok(())
    }

    /// No fsync is under way any more.
    pub fn end_sync(&mut self) {
        let Some(life) = &mut self.life else { return };
        if let Some((syncing, ran)) = life.syncing.take() {
            let result = ran.unwrap_or_else(|| syncing.run());
            life.runner.end_sync(syncing, result);
        }
    }
}
