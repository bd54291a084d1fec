//! The threads around the runner: one that runs it, one that waits for the disk.
//!
//! Proposers leave their proposals in an inbox and go on. The log thread takes all that have
//! arrived, so the more there are, the more share one write and one fsync. Appends go on while an
//! fsync is under way on the sync thread. Nobody is woken who is not asleep.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use io::real::RealRandom;
use io::task::{self, Receiver, Sender, Thread};
use io::{Clock, Files, Nanos, Random};

use super::inbox::{Arrived, Change, Command, Inbox};
use super::runner::{Flushing, Outside, Pace, Runner, Syncing};
use super::store::{FileStore, StoreOptions};
use crate::company::Company;
use crate::contract::{Applier, Done, Letter, Log, Mail, Nobody, OriginDone, Watch};
use crate::error::LogError;
use crate::lsn::{Acks, Durability, GroupId, Lsn, Term};
use crate::member::{Birth, GroupStatus, MemberChange, Members, Origin, PeerId};
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
    pub mail: Arc<dyn Mail>,
    /// Who is told what happens to groups.
    pub watch: Arc<dyn Watch>,
}

impl Default for FileLogOptions {
    fn default() -> FileLogOptions {
        FileLogOptions {
            store: StoreOptions::default(),
            soft_wait: Duration::from_millis(100),
            log_bytes_max: 512 << 20,
            random: Arc::new(RealRandom),
            mail: Arc::new(Nobody),
            watch: Arc::new(Nobody),
        }
    }
}

/// The log of a node, in the segments of one folder.
pub struct FileLog {
    inbox: Arc<Inbox>,
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
        let FileLogOptions { store, soft_wait, log_bytes_max, random, mail, watch } = options;
        let store = FileStore::open(files, Arc::clone(&random), dir, store)?;
        let pace = Pace { soft_wait, log_bytes_max };
        let outside =
            Outside { applier: Arc::clone(&applier), clock: Arc::clone(&clock), random, mail, watch };
        let runner = Runner::new(store, outside, pace);
        let inbox = Arc::new(Inbox::default());
        let (to_sync, from_log) = task::channel();
        let sync_inbox = Arc::clone(&inbox);
        let sync_thread = task::spawn("log-sync", move || sync_until_hung_up(&from_log, &sync_inbox))?;
        let thread = LogThread {
            runner,
            inbox: Arc::clone(&inbox),
            applier,
            clock,
            to_sync,
            sync_thread: Some(sync_thread),
            flush_thread: None,
        };
        let log_thread = task::spawn("log", move || thread.run())?;
        Ok(FileLog { inbox, log_thread: Some(log_thread) })
    }

    fn change(&self, id: GroupId, change: Change) -> Result<(), LogError> {
        self.command(|reply| Command::Group(id, change, reply))
    }

    fn command<T>(
        &self,
        command: impl FnOnce(Sender<Result<T, LogError>>) -> Command,
    ) -> Result<T, LogError> {
        let (reply, answer) = task::channel();
        if !self.inbox.post(|arrived| arrived.commands.push(command(reply))) {
            return Err(LogError::Stopped);
        }
        // A log thread that ended without an answer has dropped the sender.
        answer.recv().unwrap_or(Err(LogError::Stopped))
    }

    fn ask(&self, ask: Ask) {
        self.inbox.post_ask(ask);
    }
}

impl Log for FileLog {
    fn open_group(&self, id: GroupId, applied: Lsn, birth: Birth) -> Result<(), LogError> {
        self.change(id, Change::Open(applied, birth))
    }

    fn close_group(&self, id: GroupId) -> Result<(), LogError> {
        self.change(id, Change::Close)
    }

    fn leave_group(&self, id: GroupId) -> Result<(), LogError> {
        self.change(id, Change::Leave)
    }

    fn propose_in(&self, id: GroupId, term: Option<Term>, entry: Bytes, durability: Durability, done: Done) {
        self.inbox.post_proposal(Proposal { group: id, term, work: Work::Entry(entry, durability), done });
    }

    fn set_acks(&self, id: GroupId, acks: Acks) {
        self.ask(Ask::Acks(id, acks));
    }

    fn sync(&self, id: GroupId, done: Done) {
        self.inbox.post_proposal(Proposal { group: id, term: None, work: Work::Sync, done });
    }

    fn step(&self, letter: Letter) {
        self.inbox.post(|arrived| arrived.letters.push(letter));
    }

    fn read_index(&self, id: GroupId, done: Done) {
        self.inbox.post_proposal(Proposal { group: id, term: None, work: Work::Read, done });
    }

    fn change_members(&self, id: GroupId, change: MemberChange, done: Done) {
        self.inbox.post_proposal(Proposal { group: id, term: None, work: Work::Change(change), done });
    }

    fn transfer(&self, id: GroupId, to: PeerId) {
        self.ask(Ask::Transfer(id, to));
    }

    fn campaign(&self, id: GroupId) {
        self.ask(Ask::Campaign(id));
    }

    fn peers_silent(&self, peers: Vec<PeerId>) {
        self.ask(Ask::Silent(peers));
    }

    fn peers_back(&self, peers: Vec<PeerId>) {
        self.ask(Ask::Back(peers));
    }

    fn origin(&self, id: GroupId, at: Lsn, done: OriginDone) {
        self.ask(Ask::Origin(id, at, done));
    }

    fn begin_restore(&self, id: GroupId) -> Result<(), LogError> {
        self.change(id, Change::BeginRestore)
    }

    fn finish_restore(&self, id: GroupId, origin: Origin) -> Result<(), LogError> {
        self.change(id, Change::FinishRestore(origin))
    }

    fn reset_members(&self, id: GroupId, members: Members) -> Result<Members, LogError> {
        self.change(id, Change::ResetMembers(members))?;
        Ok(self.group_status(id)?.members)
    }

    fn group_status(&self, id: GroupId) -> Result<GroupStatus, LogError> {
        self.command(|reply| Command::Status(id, reply))
    }

    fn stats(&self) -> LogStats {
        self.inbox.stats.lock().clone()
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        self.inbox.post(|arrived| arrived.stop = true);
        if let Some(thread) = self.log_thread.take() {
            thread.join();
        }
    }
}

/// Runs one fsync after the other until the log thread is gone.
fn sync_until_hung_up(from_log: &Receiver<Syncing>, inbox: &Inbox) {
    while let Ok(syncing) = from_log.recv() {
        let result = syncing.run();
        inbox.post(|arrived| arrived.synced = Some((syncing, result)));
    }
}

/// What the log thread holds.
struct LogThread {
    runner: Runner<FileStore>,
    inbox: Arc<Inbox>,
    applier: Arc<dyn Applier>,
    clock: Arc<dyn Clock>,
    to_sync: Sender<Syncing>,
    sync_thread: Option<Thread>,
    flush_thread: Option<Thread>,
}

impl LogThread {
    fn run(mut self) {
        let mut arrived = Arrived::default();
        let mut company = Company::default();
        let mut stop = false;
        while !stop {
            self.inbox.take(&mut arrived, self.wait(), self.runner.patience(), company.expected());
            company.turned(arrived.soft(), self.clock.now());
            self.end_tasks(&mut arrived);
            self.runner.receive(&mut arrived.letters);
            for ask in arrived.asks.drain(..) {
                self.runner.ask(ask);
            }
            self.runner.turn(&mut arrived.proposals);
            for command in arrived.commands.drain(..) {
                self.carry_out(command);
            }
            stop = std::mem::take(&mut arrived.stop);
            self.runner.tick();
            self.begin_tasks();
            self.publish();
        }
        self.finish();
    }

    /// How long nothing needs doing; `None` for as long as nobody asks.
    fn wait(&self) -> Option<Duration> {
        let due = self.runner.due()?;
        Some(Nanos::since(due, self.clock.now()))
    }

    fn end_tasks(&mut self, arrived: &mut Arrived) {
        if let Some((syncing, result)) = arrived.synced.take() {
            self.runner.end_sync(syncing, result);
        }
        if let Some((flushing, result)) = arrived.flushed.take() {
            self.runner.end_flush(&flushing, result);
        }
    }

    fn begin_tasks(&mut self) {
        if let Some(syncing) = self.runner.begin_sync() {
            // The sync thread lives for as long as this sender.
            drop(self.to_sync.send(syncing));
        }
        if let Some(flushing) = self.runner.begin_flush() {
            self.flush(flushing);
        }
    }

    /// Flushes the engine on a thread of its own, while entries go on being applied.
    fn flush(&mut self, flushing: Flushing) {
        let (applier, inbox) = (Arc::clone(&self.applier), Arc::clone(&self.inbox));
        let run = move || {
            let result = applier.flush();
            inbox.post(|arrived| arrived.flushed = Some((flushing, result)));
        };
        // The one before has ended: its letter came first.
        self.flush_thread = match task::spawn("log-flush", run) {
            Ok(thread) => Some(thread),
            Err(cause) => {
                tracing::error!(%cause, "no thread to flush the engine with; the log keeps growing");
                None
            }
        };
    }

    fn carry_out(&mut self, command: Command) {
        // Whoever asked waits for the answer; a receiver that is gone wants none.
        match command {
            Command::Group(id, change, reply) => {
                if !matches!(change, Change::Open(..)) {
                    self.wait_for_sync();
                }
                let runner = &mut self.runner;
                drop(reply.send(match change {
                    Change::Open(applied, birth) => runner.open_group(id, applied, &birth),
                    Change::Close => runner.close_group(id),
                    Change::Leave => runner.leave_group(id),
                    Change::BeginRestore => runner.begin_restore(id),
                    Change::FinishRestore(origin) => runner.finish_restore(id, &origin),
                    Change::ResetMembers(members) => runner.reset_members(id, members),
                }));
            }
            Command::Status(id, reply) => drop(reply.send(self.runner.group_status(id))),
        }
    }

    /// Waits until no fsync is under way.
    fn wait_for_sync(&mut self) {
        while self.runner.is_syncing() {
            if let Some((syncing, result)) = self.inbox.take_synced() {
                self.runner.end_sync(syncing, result);
            }
        }
    }

    fn publish(&self) {
        *self.inbox.stats.lock() = self.runner.stats();
    }

    fn finish(&mut self) {
        self.wait_for_sync();
        self.runner.finish();
        self.publish();
        if let Some(thread) = self.flush_thread.take() {
            thread.join();
        }
    }
}

impl Drop for LogThread {
    /// Also when the thread panics: nobody may wait for an answer that never comes.
    fn drop(&mut self) {
        self.inbox.close();
        let (hung_up, _) = task::channel();
        self.to_sync = hung_up;
        if let Some(thread) = self.sync_thread.take() {
            thread.join();
        }
    }
}
