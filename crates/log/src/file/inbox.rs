//! The input of the log thread, and when the thread is woken for it.

use std::time::Duration;

use io::Nanos;
use io::task::{Condvar, Sender};
use parking_lot::{Mutex, MutexGuard};

use super::runner::{FlushJob, SyncJob};
use crate::batch_window::BATCH_WAIT;
use crate::contract::Message;
use crate::error::{ApplyError, LogError, Refusal};
use crate::log_base::LogBase;
use crate::lsn::{Durability, GroupId, Lsn};
use crate::member::{GroupStatus, InitialConfig, Members};
use crate::proposal::{Proposal, Request, Work};
use crate::stats::LogStats;

/// More bytes of soft entries than this are left to the log thread, since a proposer that drives the log has other
/// connections to serve.
const DRIVEN_BYTES_MAX: usize = 1 << 20;
/// If more messages than this wait for a log thread that hangs, the oldest are dropped; their senders repeat them.
const MESSAGE_BYTES_MAX: usize = 32 << 20;
/// Bytes of a message beside its body.
const MESSAGE_HEAD_BYTES: usize = 64;

/// The input of a step.
#[derive(Default)]
pub(super) struct Inbound {
    pub proposals: Vec<Proposal>,
    pub messages: Vec<Message>,
    message_bytes: usize,
    pub requests: Vec<Request>,
    pub commands: Vec<Command>,
    pub synced: Option<(SyncJob, std::io::Result<()>)>,
    pub flushed: Option<(FlushJob, Result<(), ApplyError>)>,
    pub stop: bool,
}

/// A command that blocks its caller.
pub(super) enum Command {
    Group(GroupId, GroupChange, Sender<Result<(), LogError>>),
    Statuses(Vec<GroupId>, Sender<Result<Vec<Option<GroupStatus>>, LogError>>),
}

/// A change of a group on this node.
pub(super) enum GroupChange {
    Open(Lsn, InitialConfig),
    Close,
    Leave,
    BeginRestore,
    FinishRestore(LogBase),
    ResetMembers(Members),
}

/// How the log thread waits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WaitPlan {
    /// When there is work to do although nothing arrives, and how long until then.
    pub due: Option<Nanos>,
    pub wait: Option<Duration>,
    /// The number of proposals that wake the thread if all are hard.
    pub hard_wanted: usize,
    /// The number of soft proposals that the thread waits a moment for.
    pub soft_wanted: usize,
}

/// The contents of the inbox, for a proposer that drives the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    Empty,
    /// Soft entries and nothing else, and not too many.
    SoftOnly,
    /// Something that only the log thread carries out.
    Other,
}

/// Collects the input of the log from proposers, links and helper threads.
#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<InboxState>,
    arrived: Condvar,
    pub stats: Mutex<LogStats>,
}

#[derive(Default)]
struct InboxState {
    inbound: Inbound,
    /// Whether the log thread sleeps.
    asleep: bool,
    /// How many proposals wake it if all are hard.
    hard_wanted: usize,
    /// While it waits a moment for more soft proposals: how many end the wait. Zero otherwise.
    soft_wanted: usize,
    /// How many callers of [`Inbox::hold`] have not released it.
    held: usize,
    /// Whether the log thread is to be woken at the last release.
    wake_on_release: bool,
    /// The due time of the log thread's next work, as of when it went to sleep.
    due: Option<Nanos>,
    /// Whether other work fell due before it went to sleep.
    is_due_earlier: bool,
    closed: bool,
}

impl Inbox {
    /// Posts something that wakes the log thread at once. Returns false, and posts nothing, if the inbox is closed.
    pub fn post(&self, write: impl FnOnce(&mut Inbound)) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        write(&mut state.inbound);
        if std::mem::take(&mut state.asleep) {
            drop(state);
            self.arrived.notify_one();
        }
        true
    }

    /// Posts a proposal, or refuses it if the inbox is closed. Wakes the log thread once there are as many as it waits for.
    pub fn post_proposal(&self, proposal: Proposal) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return (proposal.done)(Err(Refusal::Stopped.into()));
        }
        let enough = match proposal.work {
            Work::Entry(_, Durability::Hard) => state.hard_wanted.max(state.soft_wanted),
            Work::Entry(_, Durability::Soft) => state.soft_wanted,
            Work::Sync | Work::Read | Work::Change(_) => 0,
        };
        state.inbound.proposals.push(proposal);
        if state.inbound.proposals.len() >= enough {
            self.wake(state);
        }
    }

    /// Posts a soft proposal whose proposer will drive the log, and does not wake the log thread.
    pub fn post_deferred(&self, proposal: Proposal) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return (proposal.done)(Err(Refusal::Stopped.into()));
        }
        state.inbound.proposals.push(proposal);
    }

    /// Takes the proposals, if the inbox has soft entries and nothing else. Only for the holder of the log's lock.
    pub fn take_soft(&self, taken: &mut Vec<Proposal>) -> Contents {
        let mut state = self.state.lock();
        let contents = state.inbound.contents();
        if contents == Contents::SoftOnly {
            std::mem::swap(taken, &mut state.inbound.proposals);
        }
        contents
    }

    /// Whether there are no proposals.
    pub fn is_empty(&self) -> bool {
        self.state.lock().inbound.proposals.is_empty()
    }

    /// A proposer has driven the log, and the next work is due at `due` now. Returns whether there are no proposals.
    pub fn after_drive(&self, due: Option<Nanos>) -> bool {
        let mut state = self.state.lock();
        let is_empty = state.inbound.proposals.is_empty();
        let is_earlier = due.is_some_and(|due| state.due.is_none_or(|known| due < known));
        if !state.asleep {
            state.is_due_earlier = true;
        } else if is_earlier {
            state.asleep = false;
            drop(state);
            self.arrived.notify_one();
        }
        is_empty
    }

    /// Wakes the log thread for the contents of the inbox.
    pub fn wake_log_thread(&self) {
        self.wake(self.state.lock());
    }

    /// The caller will post more in a moment: until [`Inbox::release`], proposals, messages and requests do not wake the
    /// log thread. Commands and results of tasks do.
    pub fn hold(&self) {
        self.state.lock().held += 1;
    }

    /// Ends a [`Inbox::hold`].
    pub fn release(&self) {
        let mut state = self.state.lock();
        state.held -= 1;
        if state.held == 0 && std::mem::take(&mut state.wake_on_release) && state.is_worth_waking() {
            self.wake(state);
        }
    }

    /// Wakes the log thread, now or at the last release.
    fn wake(&self, mut state: MutexGuard<'_, InboxState>) {
        if state.held > 0 {
            state.wake_on_release = true;
        } else if std::mem::take(&mut state.asleep) {
            drop(state);
            self.arrived.notify_one();
        }
    }

    /// Posts a message from another node.
    pub fn post_message(&self, message: Message) {
        let mut state = self.state.lock();
        if !state.closed {
            state.inbound.add_message(message);
            self.wake(state);
        }
    }

    /// Posts a request, or refuses it if the inbox is closed.
    pub fn post_request(&self, request: Request) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return request.refuse(&Refusal::Stopped);
        }
        state.inbound.requests.push(request);
        self.wake(state);
    }

    /// Waits until there is work to do, according to the plan.
    pub fn wait(&self, plan: &WaitPlan) {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.is_due_earlier) {
            return;
        }
        state.hard_wanted = plan.hard_wanted;
        state.due = plan.due;
        if !state.inbound.is_worth_a_step(plan.hard_wanted) {
            state.asleep = true;
            match plan.wait {
                Some(wait) => drop(self.arrived.wait_for(&mut state, wait)),
                None => self.arrived.wait(&mut state),
            }
            state.asleep = false;
        }
        if state.inbound.has_only_soft_below(plan.soft_wanted) {
            state.soft_wanted = plan.soft_wanted;
            state.asleep = true;
            self.arrived.wait_for(&mut state, BATCH_WAIT);
            state.asleep = false;
            state.soft_wanted = 0;
        }
    }

    /// Takes everything. Only for the holder of the log's lock.
    pub fn take(&self, taken: &mut Inbound) {
        let mut state = self.state.lock();
        std::mem::swap(taken, &mut state.inbound);
        state.wake_on_release = false;
        taken.message_bytes = 0;
    }

    /// Waits for the end of the fsync that is running. Everything else stays in the inbox.
    pub fn take_synced(&self) -> Option<(SyncJob, std::io::Result<()>)> {
        let mut state = self.state.lock();
        while state.inbound.synced.is_none() {
            state.asleep = true;
            self.arrived.wait(&mut state);
        }
        state.asleep = false;
        state.inbound.synced.take()
    }

    /// Closes the inbox: its contents are refused, and so is everything posted later.
    pub fn close(&self) {
        let left = {
            let mut state = self.state.lock();
            state.closed = true;
            let left = std::mem::take(&mut state.inbound);
            // A log thread that has not ended yet must do so.
            state.inbound.stop = true;
            if std::mem::take(&mut state.asleep) {
                self.arrived.notify_one();
            }
            left
        };
        for request in left.requests {
            request.refuse(&Refusal::Stopped);
        }
        for proposal in left.proposals {
            (proposal.done)(Err(Refusal::Stopped.into()));
        }
    }
}

impl InboxState {
    /// Whether there is as much as the log thread waits for; a proposer may have taken it since it was posted.
    fn is_worth_waking(&self) -> bool {
        self.inbound.is_worth_a_step(self.hard_wanted) && !self.inbound.has_only_soft_below(self.soft_wanted)
    }
}

impl Inbound {
    fn add_message(&mut self, message: Message) {
        let bytes = |message: &Message| MESSAGE_HEAD_BYTES + message.body.len();
        self.message_bytes += bytes(&message);
        self.messages.push(message);
        if self.message_bytes > MESSAGE_BYTES_MAX && self.messages.len() > 1 {
            self.messages.drain(..self.messages.len() / 2);
            self.message_bytes = self.messages.iter().map(bytes).sum();
        }
    }

    fn is_worth_a_step(&self, hard_wanted: usize) -> bool {
        let is_hard = |proposal: &Proposal| matches!(proposal.work, Work::Entry(_, Durability::Hard));
        self.proposals.len() >= hard_wanted.max(1)
            || self.proposals.iter().any(|proposal| !is_hard(proposal))
            || self.is_urgent()
    }

    fn contents(&self) -> Contents {
        if self.proposals.is_empty() {
            return Contents::Empty;
        }
        let is_small = self.soft_bytes().is_some_and(|bytes| bytes <= DRIVEN_BYTES_MAX);
        if is_small && !self.is_urgent() { Contents::SoftOnly } else { Contents::Other }
    }

    /// Bytes of all proposals, if all are soft entries.
    fn soft_bytes(&self) -> Option<usize> {
        let bytes = |proposal: &Proposal| match &proposal.work {
            Work::Entry(entry, Durability::Soft) => Some(entry.len()),
            _ => None,
        };
        self.proposals.iter().map(bytes).sum()
    }

    /// Whether there are soft entries, fewer than `wanted`, and nothing else.
    fn has_only_soft_below(&self, wanted: usize) -> bool {
        let soft = self.soft();
        soft > 0 && soft == self.proposals.len() && soft < wanted && !self.is_urgent()
    }

    /// The number of soft entries.
    pub fn soft(&self) -> usize {
        let is_soft = |proposal: &&Proposal| matches!(proposal.work, Work::Entry(_, Durability::Soft));
        self.proposals.iter().filter(is_soft).count()
    }

    fn is_urgent(&self) -> bool {
        !(self.messages.is_empty() && self.requests.is_empty() && self.commands.is_empty())
            || self.synced.is_some()
            || self.flushed.is_some()
            || self.stop
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::member::PeerId;

    fn message(number: u64, body: Bytes) -> Message {
        Message { group: GroupId(1), from: PeerId(number), to: PeerId(0), body }
    }

    fn proposal(work: Work) -> Proposal {
        Proposal { group: GroupId(1), term: None, work, done: Box::new(|_| ()) }
    }

    fn hard() -> Proposal {
        proposal(Work::Entry(Bytes::new(), Durability::Hard))
    }

    /// An inbox whose log thread sleeps until it has this many hard proposals.
    fn asleep(hard_wanted: usize) -> Inbox {
        let inbox = Inbox::default();
        {
            let mut state = inbox.state.lock();
            (state.asleep, state.hard_wanted) = (true, hard_wanted);
        }
        inbox
    }

    #[test]
    fn the_log_thread_is_woken_once_for_posts_while_the_inbox_is_held() {
        let leave: [fn(&Inbox); 3] = [
            |inbox| inbox.post_message(message(1, Bytes::new())),
            |inbox| inbox.post_proposal(hard()),
            |inbox| inbox.post_proposal(proposal(Work::Sync)),
        ];
        for (number, leave) in leave.iter().enumerate() {
            let inbox = asleep(1);
            inbox.hold();
            inbox.hold();
            leave(&inbox);
            leave(&inbox);
            inbox.release();
            assert!(inbox.state.lock().asleep, "{number}: another caller holds it");
            inbox.release();
            assert!(!inbox.state.lock().asleep, "{number}");
            inbox.state.lock().asleep = true;
            leave(&inbox);
            assert!(!inbox.state.lock().asleep, "{number}: it is not held");
        }
    }

    #[test]
    fn it_is_not_woken_for_fewer_than_it_waits_for() {
        let inbox = asleep(3);
        inbox.hold();
        inbox.post_proposal(hard());
        inbox.release();
        inbox.post_proposal(hard());
        assert!(inbox.state.lock().asleep);
        inbox.post_proposal(hard());
        assert!(!inbox.state.lock().asleep);
    }

    #[test]
    fn it_is_not_woken_for_proposals_that_were_taken() {
        let inbox = asleep(1);
        inbox.hold();
        inbox.post_proposal(proposal(Work::Entry(Bytes::new(), Durability::Soft)));
        assert_eq!(inbox.take_soft(&mut Vec::new()), Contents::SoftOnly);
        inbox.release();
        assert!(inbox.state.lock().asleep);
    }

    #[test]
    fn a_post_wakes_it_although_the_inbox_is_held() {
        let inbox = asleep(1);
        inbox.hold();
        assert!(inbox.post(|inbound| inbound.stop = true));
        assert!(!inbox.state.lock().asleep);
    }

    #[test]
    fn only_the_newest_messages_wait_for_a_thread_that_hangs() {
        let inbox = Inbox::default();
        let body = Bytes::from(vec![0; 1 << 20]);
        for number in 0..100 {
            inbox.post_message(message(number, body.clone()));
        }
        let mut inbound = Inbound::default();
        inbox.take(&mut inbound);
        let kept: Vec<u64> = inbound.messages.iter().map(|message| message.from.0).collect();
        assert!((10..=32).contains(&kept.len()), "{kept:?}");
        assert!(kept.iter().rev().zip((0..100).rev()).all(|(kept, newest)| *kept == newest), "{kept:?}");
    }
}
