//! What waits for the log thread, and when it is woken for it.

use std::time::Duration;

use io::Nanos;
use io::task::{Condvar, Sender};
use parking_lot::{Mutex, MutexGuard};

use super::runner::{Flushing, Syncing};
use crate::batch_window;
use crate::contract::Message;
use crate::error::{ApplyError, LogError, Refusal};
use crate::log_base::LogBase;
use crate::lsn::{Durability, GroupId, Lsn};
use crate::member::{GroupStatus, InitialConfig, Members};
use crate::proposal::{Ask, Proposal, Work};
use crate::stats::LogStats;

/// More soft entries than this are carried out by the log thread: whoever proposed one of them has other connections
/// to serve.
const ASIDE_BYTES_MAX: usize = 1 << 20;

/// More messages than this wait for a log thread that hangs, and the oldest go: their writers write again.
const MESSAGE_BYTES_MAX: usize = 32 << 20;
/// What a message takes besides what it says.
const MESSAGE_HEAD_BYTES: usize = 64;

/// What the log thread is told.
#[derive(Default)]
pub(super) struct Arrived {
    pub proposals: Vec<Proposal>,
    pub messages: Vec<Message>,
    message_bytes: usize,
    pub asks: Vec<Ask>,
    pub commands: Vec<Command>,
    pub synced: Option<(Syncing, std::io::Result<()>)>,
    pub flushed: Option<(Flushing, Result<(), ApplyError>)>,
    pub stop: bool,
}

/// Something that its caller waits for.
pub(super) enum Command {
    Group(GroupId, Change, Sender<Result<(), LogError>>),
    Statuses(Vec<GroupId>, Sender<Result<Vec<Option<GroupStatus>>, LogError>>),
}

/// What becomes of a group on this node.
pub(super) enum Change {
    Open(Lsn, InitialConfig),
    Close,
    Leave,
    BeginRestore,
    FinishRestore(LogBase),
    ResetMembers(Members),
}

/// How the log thread rests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    /// When there is something to do although nobody asks, and how long until then.
    pub due: Option<Nanos>,
    pub wait: Option<Duration>,
    /// For how many proposals it is woken if all are hard.
    pub patience: usize,
    /// For how many soft ones it waits a moment.
    pub company: usize,
}

/// What lies in the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lying {
    Nothing,
    /// Soft entries and nothing else, and not too many.
    Soft,
    /// Something that the log thread must see to.
    More,
}

/// Where proposers, links and helper threads leave what they have for the log thread.
#[derive(Default)]
pub(super) struct Inbox {
    desk: Mutex<Desk>,
    arrived: Condvar,
    pub stats: Mutex<LogStats>,
}

#[derive(Default)]
struct Desk {
    arrived: Arrived,
    // Whether the log thread waits for a message, and for how many hard proposals if those are
    // all that come.
    asleep: bool,
    patience: usize,
    // How many have more to leave in a moment, and whether the log thread is to be woken once nobody has.
    held: usize,
    is_called: bool,
    // Where a soft proposal lies already: how many make a turn before its wait is over.
    company: usize,
    // What it knew to be due when it went to sleep, and whether something else fell due before it did.
    due: Option<Nanos>,
    is_due_earlier: bool,
    closed: bool,
}

impl Inbox {
    /// Leaves a message; false, and nothing is left, if nobody will read it.
    pub fn post(&self, write: impl FnOnce(&mut Arrived)) -> bool {
        let mut desk = self.desk.lock();
        if desk.closed {
            return false;
        }
        write(&mut desk.arrived);
        if std::mem::take(&mut desk.asleep) {
            drop(desk);
            self.arrived.notify_one();
        }
        true
    }

    /// Leaves a proposal, or refuses it if nobody will read it. It does not wake the log thread
    /// until there are as many as that waits for.
    pub fn post_proposal(&self, proposal: Proposal) {
        let mut desk = self.desk.lock();
        if desk.closed {
            drop(desk);
            return (proposal.done)(Err(Refusal::Stopped.into()));
        }
        let enough = match proposal.work {
            Work::Entry(_, Durability::Hard) => desk.patience.max(desk.company),
            Work::Entry(_, Durability::Soft) => desk.company,
            Work::Sync | Work::Read | Work::Change(_) => 0,
        };
        desk.arrived.proposals.push(proposal);
        if desk.arrived.proposals.len() >= enough {
            self.wake(desk);
        }
    }

    /// Leaves a soft proposal for the turn that its proposer will take, and wakes nobody.
    pub fn lay_aside(&self, proposal: Proposal) {
        let mut desk = self.desk.lock();
        if desk.closed {
            drop(desk);
            return (proposal.done)(Err(Refusal::Stopped.into()));
        }
        desk.arrived.proposals.push(proposal);
    }

    /// Takes the proposals, if they are soft entries and nothing else lies there. Only for who has the turn.
    pub fn take_soft(&self, taken: &mut Vec<Proposal>) -> Lying {
        let mut desk = self.desk.lock();
        let lying = desk.arrived.lying();
        if lying == Lying::Soft {
            std::mem::swap(taken, &mut desk.arrived.proposals);
        }
        lying
    }

    /// Whether no proposal lies there.
    pub fn is_empty(&self) -> bool {
        self.desk.lock().arrived.proposals.is_empty()
    }

    /// A proposer has had the turn, and something may be due at `due` now. Whether no proposal lies there.
    pub fn after_turn(&self, due: Option<Nanos>) -> bool {
        let mut desk = self.desk.lock();
        let is_empty = desk.arrived.proposals.is_empty();
        let is_earlier = due.is_some_and(|due| desk.due.is_none_or(|known| due < known));
        if !desk.asleep {
            desk.is_due_earlier = true;
        } else if is_earlier {
            desk.asleep = false;
            drop(desk);
            self.arrived.notify_one();
        }
        is_empty
    }

    /// The log thread is to see to what lies there.
    pub fn call(&self) {
        self.wake(self.desk.lock());
    }

    /// The caller has more to leave in a moment: proposals, messages and questions wake nobody until
    /// [`Inbox::release`]. Commands and ends of tasks do.
    pub fn hold(&self) {
        self.desk.lock().held += 1;
    }

    /// There is no more for now.
    pub fn release(&self) {
        let mut desk = self.desk.lock();
        desk.held -= 1;
        if desk.held == 0 && std::mem::take(&mut desk.is_called) && desk.is_worth_waking() {
            self.wake(desk);
        }
    }

    /// Wakes the log thread, or has it woken once nobody has more to leave.
    fn wake(&self, mut desk: MutexGuard<'_, Desk>) {
        if desk.held > 0 {
            desk.is_called = true;
        } else if std::mem::take(&mut desk.asleep) {
            drop(desk);
            self.arrived.notify_one();
        }
    }

    /// Leaves a message of another node.
    pub fn post_message(&self, message: Message) {
        let mut desk = self.desk.lock();
        if !desk.closed {
            desk.arrived.take_message(message);
            self.wake(desk);
        }
    }

    /// Leaves a question, or refuses it if nobody will read it.
    pub fn post_ask(&self, ask: Ask) {
        let mut desk = self.desk.lock();
        if desk.closed {
            drop(desk);
            return ask.refuse(&Refusal::Stopped);
        }
        desk.arrived.asks.push(ask);
        self.wake(desk);
    }

    /// Rests until there is something to do. Of hard proposals alone there must be `patience`; soft
    /// ones wait a moment to be `company`.
    pub fn wait(&self, rest: &Rest) {
        let mut desk = self.desk.lock();
        if std::mem::take(&mut desk.is_due_earlier) {
            return;
        }
        desk.patience = rest.patience;
        desk.due = rest.due;
        if !desk.arrived.are_worth_a_turn(rest.patience) {
            desk.asleep = true;
            match rest.wait {
                Some(wait) => drop(self.arrived.wait_for(&mut desk, wait)),
                None => self.arrived.wait(&mut desk),
            }
            desk.asleep = false;
        }
        if desk.arrived.are_soft_and_fewer_than(rest.company) {
            desk.company = rest.company;
            desk.asleep = true;
            self.arrived.wait_for(&mut desk, batch_window::WAIT);
            desk.asleep = false;
            desk.company = 0;
        }
    }

    /// Takes all there is. Only for who has the turn.
    pub fn take(&self, taken: &mut Arrived) {
        let mut desk = self.desk.lock();
        std::mem::swap(taken, &mut desk.arrived);
        desk.is_called = false;
        taken.message_bytes = 0;
    }

    /// Waits for the end of the fsync that is under way. Everything else stays where it is.
    pub fn take_synced(&self) -> Option<(Syncing, std::io::Result<()>)> {
        let mut desk = self.desk.lock();
        while desk.arrived.synced.is_none() {
            desk.asleep = true;
            self.arrived.wait(&mut desk);
        }
        desk.asleep = false;
        desk.arrived.synced.take()
    }

    /// Nobody reads any more: what lies there is refused, and so is everything to come.
    pub fn close(&self) {
        let left = {
            let mut desk = self.desk.lock();
            desk.closed = true;
            let left = std::mem::take(&mut desk.arrived);
            // The log thread may not know yet that there is no more to do.
            desk.arrived.stop = true;
            if std::mem::take(&mut desk.asleep) {
                self.arrived.notify_one();
            }
            left
        };
        for ask in left.asks {
            ask.refuse(&Refusal::Stopped);
        }
        for proposal in left.proposals {
            (proposal.done)(Err(Refusal::Stopped.into()));
        }
    }
}

impl Desk {
    /// Whether what lies there is as much as the log thread waits for. Somebody else may have taken it meanwhile.
    fn is_worth_waking(&self) -> bool {
        self.arrived.are_worth_a_turn(self.patience) && !self.arrived.are_soft_and_fewer_than(self.company)
    }
}

impl Arrived {
    fn take_message(&mut self, message: Message) {
        let bytes = |message: &Message| MESSAGE_HEAD_BYTES + message.body.len();
        self.message_bytes += bytes(&message);
        self.messages.push(message);
        if self.message_bytes > MESSAGE_BYTES_MAX && self.messages.len() > 1 {
            self.messages.drain(..self.messages.len() / 2);
            self.message_bytes = self.messages.iter().map(bytes).sum();
        }
    }

    fn are_worth_a_turn(&self, patience: usize) -> bool {
        let is_hard = |proposal: &Proposal| matches!(proposal.work, Work::Entry(_, Durability::Hard));
        self.proposals.len() >= patience.max(1)
            || self.proposals.iter().any(|proposal| !is_hard(proposal))
            || self.are_urgent()
    }

    fn lying(&self) -> Lying {
        match self.proposals.is_empty() {
            true => Lying::Nothing,
            false
                if self.soft_bytes().is_some_and(|bytes| bytes <= ASIDE_BYTES_MAX) && !self.are_urgent() =>
            {
                Lying::Soft
            }
            false => Lying::More,
        }
    }

    /// Bytes of all proposals, if they are soft entries.
    fn soft_bytes(&self) -> Option<usize> {
        let bytes = |proposal: &Proposal| match &proposal.work {
            Work::Entry(entry, Durability::Soft) => Some(entry.len()),
            _ => None,
        };
        self.proposals.iter().map(bytes).sum()
    }

    fn are_soft_and_fewer_than(&self, company: usize) -> bool {
        let soft = self.soft();
        soft > 0 && soft == self.proposals.len() && soft < company && !self.are_urgent()
    }

    /// How many soft entries there are.
    pub fn soft(&self) -> usize {
        let is_soft = |proposal: &&Proposal| matches!(proposal.work, Work::Entry(_, Durability::Soft));
        self.proposals.iter().filter(is_soft).count()
    }

    fn are_urgent(&self) -> bool {
        !(self.messages.is_empty() && self.asks.is_empty() && self.commands.is_empty())
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

    /// An inbox whose log thread sleeps, until so many hard proposals have come.
    fn asleep(patience: usize) -> Inbox {
        let inbox = Inbox::default();
        {
            let mut desk = inbox.desk.lock();
            (desk.asleep, desk.patience) = (true, patience);
        }
        inbox
    }

    #[test]
    fn the_log_thread_is_woken_once_for_what_is_left_while_somebody_holds_it() {
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
            assert!(inbox.desk.lock().asleep, "{number}: somebody else holds it");
            inbox.release();
            assert!(!inbox.desk.lock().asleep, "{number}");
            inbox.desk.lock().asleep = true;
            leave(&inbox);
            assert!(!inbox.desk.lock().asleep, "{number}: nobody holds it");
        }
    }

    #[test]
    fn it_is_not_woken_for_less_than_it_waits_for() {
        let inbox = asleep(3);
        inbox.hold();
        inbox.post_proposal(hard());
        inbox.release();
        inbox.post_proposal(hard());
        assert!(inbox.desk.lock().asleep);
        inbox.post_proposal(hard());
        assert!(!inbox.desk.lock().asleep);
    }

    #[test]
    fn it_is_not_woken_for_what_somebody_else_has_taken() {
        let inbox = asleep(1);
        inbox.hold();
        inbox.post_proposal(proposal(Work::Entry(Bytes::new(), Durability::Soft)));
        assert_eq!(inbox.take_soft(&mut Vec::new()), Lying::Soft);
        inbox.release();
        assert!(inbox.desk.lock().asleep);
    }

    #[test]
    fn what_it_waits_for_wakes_it_whoever_holds_it() {
        let inbox = asleep(1);
        inbox.hold();
        assert!(inbox.post(|arrived| arrived.stop = true));
        assert!(!inbox.desk.lock().asleep);
    }

    #[test]
    fn the_newest_messages_wait_for_a_thread_that_hangs_and_not_all() {
        let inbox = Inbox::default();
        let body = Bytes::from(vec![0; 1 << 20]);
        for number in 0..100 {
            inbox.post_message(message(number, body.clone()));
        }
        let mut arrived = Arrived::default();
        inbox.take(&mut arrived);
        let kept: Vec<u64> = arrived.messages.iter().map(|message| message.from.0).collect();
        assert!((10..=32).contains(&kept.len()), "{kept:?}");
        assert!(kept.iter().rev().zip((0..100).rev()).all(|(kept, newest)| *kept == newest), "{kept:?}");
    }
}
