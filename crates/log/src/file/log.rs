//! The log of a node, as everybody else sees it.
//!
//! Proposers leave their proposals in an inbox and go on. Whoever has the log's turn takes all that
//! have arrived, so the more there are, the more share one write and one fsync. Nobody is woken who
//! is not asleep, and for soft entries of somebody who comes back for the turn, nobody at all.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use io::real::RealRandom;
use io::task::{self, Sender, Thread};
use io::{Clock, Files, Nanos, Random};

use super::inbox::{Change, Command};
use super::runner::{Outside, Pace, Runner};
use super::store::{FileStore, StoreOptions};
use super::thread;
use super::turns::Turns;
use crate::contract::{Applier, Done, GroupObserver, Log, LogBaseDone, Message, Noop, Stall, Transport};
use crate::error::{Interruption, LogError};
use crate::log_base::LogBase;
use crate::lsn::{Acks, Durability, GroupId, Lsn, Term};
use crate::member::{GroupStatus, InitialConfig, MemberChange, Members, PeerId};
use crate::proposal::{Ask, Proposal, Work};
use crate::stats::LogStats;

/// How a file log behaves.
#[derive(Clone)]
pub struct FileLogOptions {
    /// Size and layout of segments.
    pub store: StoreOptions,
    /// The longest a soft entry waits for its fsync.
    pub soft_wait: Duration,
    /// When the log holds more than this, the engine is flushed and old segments are deleted.
    pub log_bytes_max: u64,
    /// Where peer ids and salts come from.
    pub random: Arc<dyn Random>,
    /// Where arrived to other replicas go.
    pub transport: Arc<dyn Transport>,
    /// Who is told what happens to groups.
    pub observer: Arc<dyn GroupObserver>,
}

impl Default for FileLogOptions {
    fn default() -> FileLogOptions {
        FileLogOptions {
            store: StoreOptions::default(),
            soft_wait: Duration::from_millis(100),
            log_bytes_max: 512 << 20,
            random: Arc::new(RealRandom),
            transport: Arc::new(Noop),
            observer: Arc::new(Noop),
        }
    }
}

/// The log of a node, in the segments of one folder.
pub struct FileLog {
    turns: Arc<Turns>,
    log_thread: Option<Thread>,
}

impl FileLog {
    /// Opens the log in `dir`, or makes an empty one. No group is open yet.
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
        let FileLogOptions { store, soft_wait, log_bytes_max, random, transport, observer } = options;
        let store = FileStore::open(files, Arc::clone(&random), dir, store)?;
        applier.set_log_sync(store.log_sync());
        let pace = Pace { soft_wait, log_bytes_max };
        let outside =
            Outside { applier: Arc::clone(&applier), clock: Arc::clone(&clock), random, transport, observer };
        let turns = Turns::new(Runner::new(store, outside, pace), applier, Arc::clone(&clock));
        let log_thread = thread::start(&turns, clock)?;
        Ok(FileLog { turns, log_thread: Some(log_thread) })
    }

    fn change(&self, id: GroupId, change: Change) -> Result<(), LogError> {
        self.command(|reply| Command::Group(id, change, reply))
    }

    fn command<T>(
        &self,
        command: impl FnOnce(Sender<Result<T, LogError>>) -> Command,
    ) -> Result<T, LogError> {
        let (reply, answer) = task::channel();
        if !self.turns.inbox.post(|arrived| arrived.commands.push(command(reply))) {
            return Err(LogError::Stopped);
        }
        // A log thread that ended without an answer has dropped the sender.
        answer.recv().unwrap_or(Err(LogError::Stopped))
    }

    fn ask(&self, ask: Ask) {
        self.turns.inbox.post_ask(ask);
    }
}

impl Log for FileLog {
    fn open_group(&self, id: GroupId, applied: Lsn, initial: InitialConfig) -> Result<(), LogError> {
        self.change(id, Change::Open(applied, initial))
    }

    fn close_group(&self, id: GroupId) -> Result<(), LogError> {
        self.change(id, Change::Close)
    }

    fn leave_group(&self, id: GroupId) -> Result<(), LogError> {
        self.change(id, Change::Leave)
    }

    fn propose_in(&self, id: GroupId, term: Option<Term>, entry: Bytes, durability: Durability, done: Done) {
        self.turns.inbox.post_proposal(Proposal {
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
            // Hard entries wait for company, and for the disk: the log thread sees to both.
            Durability::Hard => self.turns.inbox.post_proposal(proposal),
            Durability::Soft => self.turns.inbox.lay_aside(proposal),
        }
    }

    fn drive(&self) {
        self.turns.take();
    }

    fn hold(&self) {
        self.turns.inbox.hold();
    }

    fn release(&self) {
        self.turns.inbox.release();
    }

    fn set_acks(&self, id: GroupId, acks: Acks) {
        self.ask(Ask::Acks(id, acks));
    }

    fn sync(&self, id: GroupId, done: Done) {
        self.turns.inbox.post_proposal(Proposal { group: id, term: None, work: Work::Sync, done });
    }

    fn receive(&self, message: Message) {
        self.turns.inbox.post_message(message);
    }

    fn read_index(&self, id: GroupId, done: Done) {
        self.turns.inbox.post_proposal(Proposal { group: id, term: None, work: Work::Read, done });
    }

    fn change_members(&self, id: GroupId, change: MemberChange, done: Done) {
        self.turns.inbox.post_proposal(Proposal { group: id, term: None, work: Work::Change(change), done });
    }

    fn transfer(&self, id: GroupId, to: PeerId) {
        self.ask(Ask::Transfer(id, to));
    }

    fn campaign(&self, id: GroupId) {
        self.ask(Ask::Campaign(id));
    }

    fn peers_unreachable(&self, peers: Vec<PeerId>) {
        self.ask(Ask::Silent(peers));
    }

    fn peers_reachable(&self, peers: Vec<PeerId>) {
        self.ask(Ask::Back(peers));
    }

    fn log_base(&self, id: GroupId, at: Lsn, done: LogBaseDone) {
        self.ask(Ask::LogBase(id, at, done));
    }

    fn begin_restore(&self, id: GroupId) -> Result<(), LogError> {
        self.change(id, Change::BeginRestore)
    }

    fn finish_restore(&self, id: GroupId, base: LogBase) -> Result<(), LogError> {
        self.change(id, Change::FinishRestore(base))
    }

    fn reset_members(&self, id: GroupId, members: Members) -> Result<Members, LogError> {
        self.change(id, Change::ResetMembers(members))?;
        Ok(self.group_status(id)?.members)
    }

    fn group_statuses(&self, ids: &[GroupId]) -> Result<Vec<Option<GroupStatus>>, LogError> {
        self.command(|reply| Command::Statuses(ids.to_vec(), reply))
    }

    fn stall(&self) -> Option<Stall> {
        self.turns.pulse.stall()
    }

    fn sync_since(&self) -> Option<Nanos> {
        self.turns.pulse.sync_since()
    }

    fn stopped(&self) -> Option<Interruption> {
        self.turns.pulse.stopped().cloned()
    }

    fn stats(&self) -> LogStats {
        self.turns.inbox.stats.lock().clone()
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        self.turns.inbox.post(|arrived| arrived.stop = true);
        if let Some(thread) = self.log_thread.take() {
            thread.join();
        }
    }
}
