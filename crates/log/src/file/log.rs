//! The threads around the runner: one that runs it, one that waits for the disk.
//!
//! Proposers leave their proposals in an inbox and go on. The log thread takes all that have
//! arrived, so the more there are, the more share one write and one fsync. Appends go on while an
//! fsync is under way on the sync thread. Nobody is woken who is not asleep.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use io::real::RealRandom;
use io::{Clock, Files, Nanos, Random};
use parking_lot::{Condvar, Mutex};

use super::runner::{Flushing, Pace, Runner, Syncing};
use super::store::{FileStore, StoreOptions};
use crate::company::{self, Company};
use crate::contract::{Applier, Done, Log};
use crate::driver::{Proposal, Work};
use crate::error::{ApplyError, LogError, Refusal};
use crate::lsn::{Durability, GroupId, Lsn};
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
}

impl Default for FileLogOptions {
    fn default() -> FileLogOptions {
        FileLogOptions {
            store: StoreOptions::default(),
            soft_wait: Duration::from_millis(100),
            log_bytes_max: 512 << 20,
            random: Arc::new(RealRandom),
        }
    }
}

/// The log of a node, in the segments of one folder.
pub struct FileLog {
    inbox: Arc<Inbox>,
    log_thread: Option<JoinHandle<()>>,
}

/// What the log thread is told.
#[derive(Default)]
struct Letters {
    proposals: Vec<Proposal>,
    commands: Vec<Command>,
    synced: Option<(Syncing, std::io::Result<()>)>,
    flushed: Option<(Flushing, Result<(), ApplyError>)>,
    stop: bool,
}

enum Command {
    Open(GroupId, Lsn, SyncSender<Result<(), LogError>>),
    Close(GroupId, SyncSender<Result<(), LogError>>),
}

#[derive(Default)]
struct Inbox {
    letters: Mutex<Desk>,
    arrived: Condvar,
    stats: Mutex<LogStats>,
}

#[derive(Default)]
struct Desk {
    letters: Letters,
    // Whether the log thread waits for a letter, and for how many hard proposals if those are
    // all that come.
    asleep: bool,
    patience: usize,
    // Where a soft proposal lies already: how many make a turn before its wait is over.
    company: usize,
    closed: bool,
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
        let FileLogOptions { store, soft_wait, log_bytes_max, random } = options;
        let store = FileStore::open(files, Arc::clone(&random), dir, store)?;
        let pace = Pace { soft_wait, log_bytes_max };
        let runner = Runner::new(store, Arc::clone(&applier), Arc::clone(&clock), random, pace);
        let inbox = Arc::new(Inbox::default());
        let (to_sync, from_log) = mpsc::channel();
        let sync_inbox = Arc::clone(&inbox);
        let sync_thread = Builder::new()
            .name("log-sync".to_owned())
            .spawn(move || sync_until_hung_up(&from_log, &sync_inbox))?;
        let thread = LogThread {
            runner,
            inbox: Arc::clone(&inbox),
            applier,
            clock,
            to_sync,
            sync_thread: Some(sync_thread),
            flush_thread: None,
        };
        let log_thread = Builder::new().name("log".to_owned()).spawn(move || thread.run())?;
        Ok(FileLog { inbox, log_thread: Some(log_thread) })
    }

    fn command(
        &self,
        command: impl FnOnce(SyncSender<Result<(), LogError>>) -> Command,
    ) -> Result<(), LogError> {
        let (reply, answer) = mpsc::sync_channel(1);
        if !self.inbox.post(|letters| letters.commands.push(command(reply))) {
            return Err(LogError::Stopped);
        }
        // A log thread that ended without an answer has dropped the sender.
        answer.recv().unwrap_or(Err(LogError::Stopped))
    }
}

impl Log for FileLog {
    fn open_group(&self, id: GroupId, applied: Lsn) -> Result<(), LogError> {
        self.command(|reply| Command::Open(id, applied, reply))
    }

    fn close_group(&self, id: GroupId) -> Result<(), LogError> {
        self.command(|reply| Command::Close(id, reply))
    }

    fn propose(&self, id: GroupId, entry: Bytes, durability: Durability, done: Done) {
        self.inbox.post_proposal(Proposal { group: id, work: Work::Entry(entry, durability), done });
    }

    fn sync(&self, id: GroupId, done: Done) {
        self.inbox.post_proposal(Proposal { group: id, work: Work::Sync, done });
    }

    fn stats(&self) -> LogStats {
        self.inbox.stats.lock().clone()
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        self.inbox.post(|letters| letters.stop = true);
        if let Some(thread) = self.log_thread.take() {
            // A panic was already reported on its own thread.
            drop(thread.join());
        }
    }
}

impl Inbox {
    /// Leaves a letter; false, and nothing is left, if nobody will read it.
    fn post(&self, write: impl FnOnce(&mut Letters)) -> bool {
        let mut desk = self.letters.lock();
        if desk.closed {
            return false;
        }
        write(&mut desk.letters);
        if std::mem::take(&mut desk.asleep) {
            drop(desk);
            self.arrived.notify_one();
        }
        true
    }

    /// Leaves a proposal, or refuses it if nobody will read it. It does not wake the log thread
    /// until there are as many as that waits for.
    fn post_proposal(&self, proposal: Proposal) {
        let mut desk = self.letters.lock();
        if desk.closed {
            drop(desk);
            return (proposal.done)(Err(Refusal::Stopped.into()));
        }
        let enough = match proposal.work {
            Work::Entry(_, Durability::Hard) => desk.patience.max(desk.company),
            Work::Entry(_, Durability::Soft) => desk.company,
            Work::Sync => 0,
        };
        desk.letters.proposals.push(proposal);
        let is_enough = desk.letters.proposals.len() >= enough;
        if is_enough && std::mem::take(&mut desk.asleep) {
            drop(desk);
            self.arrived.notify_one();
        }
    }

    /// Waits until there is a letter, or for `wait` at most, and takes all there are. Of hard
    /// proposals alone there must be `patience`; soft ones wait a moment to be `company`.
    fn take(&self, taken: &mut Letters, wait: Option<Duration>, patience: usize, company: usize) {
        let mut desk = self.letters.lock();
        desk.patience = patience;
        if !desk.letters.are_worth_a_turn(patience) {
            desk.asleep = true;
            match wait {
                Some(wait) => drop(self.arrived.wait_for(&mut desk, wait)),
                None => self.arrived.wait(&mut desk),
            }
            desk.asleep = false;
        }
        if desk.letters.are_soft_and_fewer_than(company) {
            desk.company = company;
            desk.asleep = true;
            self.arrived.wait_for(&mut desk, company::WAIT);
            desk.asleep = false;
            desk.company = 0;
        }
        std::mem::swap(taken, &mut desk.letters);
    }

    /// Nobody reads any more: what lies there is refused, and so is everything to come.
    fn close(&self) {
        let left = {
            let mut desk = self.letters.lock();
            desk.closed = true;
            std::mem::take(&mut desk.letters)
        };
        for proposal in left.proposals {
            (proposal.done)(Err(Refusal::Stopped.into()));
        }
    }
}

impl Letters {
    fn are_worth_a_turn(&self, patience: usize) -> bool {
        let is_hard = |proposal: &Proposal| matches!(proposal.work, Work::Entry(_, Durability::Hard));
        self.proposals.len() >= patience.max(1)
            || self.proposals.iter().any(|proposal| !is_hard(proposal))
            || self.are_urgent()
    }

    fn are_soft_and_fewer_than(&self, company: usize) -> bool {
        let soft = self.soft();
        soft > 0 && soft == self.proposals.len() && soft < company && !self.are_urgent()
    }

    /// How many soft entries there are.
    fn soft(&self) -> usize {
        let is_soft = |proposal: &&Proposal| matches!(proposal.work, Work::Entry(_, Durability::Soft));
        self.proposals.iter().filter(is_soft).count()
    }

    fn are_urgent(&self) -> bool {
        !self.commands.is_empty() || self.synced.is_some() || self.flushed.is_some() || self.stop
    }
}

/// Runs one fsync after the other until the log thread is gone.
fn sync_until_hung_up(from_log: &Receiver<Syncing>, inbox: &Inbox) {
    while let Ok(syncing) = from_log.recv() {
        let result = syncing.run();
        inbox.post(|letters| letters.synced = Some((syncing, result)));
    }
}

/// What the log thread holds.
struct LogThread {
    runner: Runner<FileStore>,
    inbox: Arc<Inbox>,
    applier: Arc<dyn Applier>,
    clock: Arc<dyn Clock>,
    to_sync: Sender<Syncing>,
    sync_thread: Option<JoinHandle<()>>,
    flush_thread: Option<JoinHandle<()>>,
}

impl LogThread {
    fn run(mut self) {
        let mut letters = Letters::default();
        let mut company = Company::default();
        let mut stop = false;
        while !stop {
            self.inbox.take(&mut letters, self.wait(), self.runner.patience(), company.expected());
            company.turned(letters.soft(), self.clock.now());
            self.end_tasks(&mut letters);
            self.runner.turn(&mut letters.proposals);
            for command in letters.commands.drain(..) {
                self.carry_out(command);
            }
            stop = std::mem::take(&mut letters.stop);
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

    fn end_tasks(&mut self, letters: &mut Letters) {
        if let Some((syncing, result)) = letters.synced.take() {
            self.runner.end_sync(syncing, result);
        }
        if let Some((flushing, result)) = letters.flushed.take() {
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
            inbox.post(|letters| letters.flushed = Some((flushing, result)));
        };
        // The one before has ended: its letter came first.
        self.flush_thread = match Builder::new().name("log-flush".to_owned()).spawn(run) {
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
            Command::Open(id, applied, reply) => {
                drop(reply.send(self.runner.open_group(id, applied)));
            }
            Command::Close(id, reply) => {
                self.wait_for_sync();
                drop(reply.send(self.runner.close_group(id)));
            }
        }
    }

    /// Waits until no fsync is under way. Other letters stay where they are.
    fn wait_for_sync(&mut self) {
        while self.runner.is_syncing() {
            let synced = {
                let mut desk = self.inbox.letters.lock();
                while desk.letters.synced.is_none() {
                    desk.asleep = true;
                    self.inbox.arrived.wait(&mut desk);
                }
                desk.asleep = false;
                desk.letters.synced.take()
            };
            if let Some((syncing, result)) = synced {
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
            drop(thread.join());
        }
    }
}

impl Drop for LogThread {
    /// Also when the thread panics: nobody may wait for an answer that never comes.
    fn drop(&mut self) {
        self.inbox.close();
        let (hung_up, _) = mpsc::channel();
        self.to_sync = hung_up;
        if let Some(thread) = self.sync_thread.take() {
            drop(thread.join());
        }
    }
}
