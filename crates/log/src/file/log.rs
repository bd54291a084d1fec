//! The log of a node, as its users see it.
//!
//! Proposers post their proposals to an inbox and continue. The thread that drives the log takes all that have arrived,
//! so the more there are, the more share one write and one fsync. The log thread is only woken if it sleeps, and not at
//! all for soft entries of a proposer that comes back to drive the log itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use io::real::RealRandom;
use io::task::{self, Sender, Thread};
use io::{Clock, Files, Nanos, Random};

use super::drive::SharedLog;
use super::inbox::{Command, GroupChange};
use super::runner::{Environment, FlushPolicy, Runner};
use super::store::{FileStore, StoreOptions};
use super::thread;
use crate::contract::{Applier, Done, GroupObserver, Log, LogBaseDone, Message, Noop, Stall, Transport};
use crate::error::{Interruption, LogError};
use crate::log_base::LogBase;
use crate::lsn::{Acks, Durability, GroupId, Lsn, Term};
use crate::member::{GroupStatus, InitialConfig, MemberChange, Members, PeerId};
use crate::proposal::{Proposal, Request, Work};
use crate::stats::LogStats;

/// How a file log behaves.
#[derive(Clone)]
pub struct FileLogOptions {
    /// Size and layout of segments.
    pub store: StoreOptions,
    /// The longest time a soft entry waits for its fsync.
    pub soft_wait: Duration,
    /// When the log holds more than this, the engine is flushed, and segments are deleted that other replicas may need.
    pub log_bytes_max: u64,
    /// When more than this would be replayed after a crash, the engine is flushed.
    pub replay_bytes_max: u64,
    /// The engine is flushed this long after the last time, if anything worth it was appended since: deleted rows leave the
    /// disk only after a flush.
    pub flush_interval: Duration,
    /// The source of peer ids and salts.
    pub random: Arc<dyn Random>,
    /// Carries messages to other replicas.
    pub transport: Arc<dyn Transport>,
    /// Is notified of changes in groups.
    pub observer: Arc<dyn GroupObserver>,
}

impl Default for FileLogOptions {
    fn default() -> FileLogOptions {
        FileLogOptions {
            store: StoreOptions::default(),
            soft_wait: Duration::from_millis(100),
            log_bytes_max: 512 << 20,
            replay_bytes_max: 192 << 20,
            flush_interval: Duration::from_secs(60),
            random: Arc::new(RealRandom),
            transport: Arc::new(Noop),
            observer: Arc::new(Noop),
        }
    }
}

/// The log of a node, in the segments of one folder.
pub struct FileLog {
    log: Arc<SharedLog>,
    log_thread: Option<Thread>,
}

impl FileLog {
    /// Opens the log in `dir`, or creates an empty one. No group is open yet.
    ///
    /// Fails with [`LogError::Damaged`] if bytes that were durable are wrong, and changes
    /// nothing then.
    pub fn open(
        files: Arc<dyn Files>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        applier: Arc<dyn Applier>,
        options: FileLogOptions,
    ) -> Result<FileLog, LogError> {
        let FileLogOptions { store, random, transport, observer, .. } = options;
        let policy = FlushPolicy {
            soft_wait: options.soft_wait,
            log_bytes_max: options.log_bytes_max,
            replay_bytes_max: options.replay_bytes_max,
            flush_interval: options.flush_interval,
        };
        let store = FileStore::open(files, Arc::clone(&random), dir, store)?;
        applier.set_log_sync(store.log_sync());
        let environment = Environment {
            applier: Arc::clone(&applier),
            clock: Arc::clone(&clock),
            random,
            transport,
            observer,
        };
        let log = SharedLog::new(Runner::new(store, environment, policy), applier, Arc::clone(&clock));
        let log_thread = thread::start(&log, clock)?;
        Ok(FileLog { log, log_thread: Some(log_thread) })
    }

    fn change(&self, id: GroupId, change: GroupChange) -> Result<(), LogError> {
        self.command(|reply| Command::Group(id, change, reply))
    }

    fn command<T>(
        &self,
        command: impl FnOnce(Sender<Result<T, LogError>>) -> Command,
    ) -> Result<T, LogError> {
        let (reply, answer) = task::channel();
        if !self.log.inbox.post(|inbound| inbound.commands.push(command(reply))) {
            return Err(LogError::Stopped);
        }
        // A log thread that ended without an answer has dropped the sender.
        answer.recv().unwrap_or(Err(LogError::Stopped))
    }

    fn request(&self, request: Request) {
        self.log.inbox.post_request(request);
    }
}

impl Log for FileLog {
    fn open_group(&self, id: GroupId, applied: Lsn, initial: InitialConfig) -> Result<(), LogError> {
        self.change(id, GroupChange::Open(applied, initial))
    }

    fn close_group(&self, id: GroupId) -> Result<(), LogError> {
        self.change(id, GroupChange::Close)
    }

    fn leave_group(&self, id: GroupId) -> Result<(), LogError> {
        self.change(id, GroupChange::Leave)
    }

    fn propose_in(&self, id: GroupId, term: Option<Term>, entry: Bytes, durability: Durability, done: Done) {
        self.log.inbox.post_proposal(Proposal {
            group: id,
            term,
            work: Work::Entry(entry, durability),
            done,
        });
    }

    fn propose_deferred(
        &self,
        id: GroupId,
        term: Option<Term>,
        entry: Bytes,
        durability: Durability,
        done: Done,
    ) {
        let proposal = Proposal { group: id, term, work: Work::Entry(entry, durability), done };
        match durability {
            // Hard entries wait for others to share their fsync, and for the disk: the log thread does both.
            Durability::Hard => self.log.inbox.post_proposal(proposal),
            Durability::Soft => self.log.inbox.post_deferred(proposal),
        }
    }

    fn drive(&self) {
        self.log.drive();
    }

    fn hold(&self) {
        self.log.inbox.hold();
    }

    fn release(&self) {
        self.log.inbox.release();
    }

    fn set_acks(&self, id: GroupId, acks: Acks) {
        self.request(Request::SetAcks(id, acks));
    }

    fn sync(&self, id: GroupId, done: Done) {
        self.log.inbox.post_proposal(Proposal { group: id, term: None, work: Work::Sync, done });
    }

    fn receive(&self, message: Message) {
        self.log.inbox.post_message(message);
    }

    fn read_index(&self, id: GroupId, done: Done) {
        self.log.inbox.post_proposal(Proposal { group: id, term: None, work: Work::Read, done });
    }

    fn change_members(&self, id: GroupId, change: MemberChange, done: Done) {
        self.log.inbox.post_proposal(Proposal { group: id, term: None, work: Work::Change(change), done });
    }

    fn transfer(&self, id: GroupId, to: PeerId) {
        self.request(Request::Transfer(id, to));
    }

    fn campaign(&self, id: GroupId) {
        self.request(Request::Campaign(id));
    }

    fn peers_unreachable(&self, peers: Vec<PeerId>) {
        self.request(Request::PeersUnreachable(peers));
    }

    fn peers_reachable(&self, peers: Vec<PeerId>) {
        self.request(Request::PeersReachable(peers));
    }

    fn log_base(&self, id: GroupId, at: Lsn, done: LogBaseDone) {
        self.request(Request::LogBase(id, at, done));
    }

    fn begin_restore(&self, id: GroupId) -> Result<(), LogError> {
        self.change(id, GroupChange::BeginRestore)
    }

    fn finish_restore(&self, id: GroupId, base: LogBase) -> Result<(), LogError> {
        self.change(id, GroupChange::FinishRestore(base))
    }

    fn reset_members(&self, id: GroupId, members: Members) -> Result<Members, LogError> {
        self.change(id, GroupChange::ResetMembers(members))?;
        Ok(self.group_status(id)?.members)
    }

    fn group_statuses(&self, ids: &[GroupId]) -> Result<Vec<Option<GroupStatus>>, LogError> {
        self.command(|reply| Command::Statuses(ids.to_vec(), reply))
    }

    fn stall(&self) -> Option<Stall> {
        self.log.health.stall()
    }

    fn sync_since(&self) -> Option<Nanos> {
        self.log.health.sync_since()
    }

    fn stopped(&self) -> Option<Interruption> {
        self.log.health.stopped().cloned()
    }

    fn stats(&self) -> LogStats {
        self.log.inbox.stats.lock().clone()
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        self.log.inbox.post(|inbound| inbound.stop = true);
        if let Some(thread) = self.log_thread.take() {
            thread.join();
        }
    }
}
