//! A log that keeps its entries in memory, for tests and simulation.
//!
//! Shares nothing with the file log, not even consensus: it is a simple implementation of the contract to compare the
//! file log with. Every group is a group of one, and leads in term 1. Entries are kept as long as the
//! [`MemoryEntries`] live.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;

use crate::contract::{Applier, Done, Entry, GroupObserver, Log, LogBaseDone, Message, Noop};
use crate::error::{Interruption, LogError, ProposeError, Refusal};
use crate::log_base::LogBase;
use crate::lsn::{Acks, Durability, GroupId, Lsn, Term};
use crate::member::{GroupStatus, InitialConfig, MemberChange, Members, PeerId, Role};
use crate::stats::LogStats;

/// The contents of a simulated disk. Clones are the same disk; a log opened on it finds the entries of the log before.
#[derive(Clone, Default)]
pub struct MemoryEntries {
    groups: Arc<Mutex<BTreeMap<GroupId, Group>>>,
}

#[derive(Default)]
struct Group {
    /// The local replica, if it was named when the group was opened.
    own: Option<PeerId>,
    entries: Vec<(Lsn, Bytes)>,
    last: Lsn,
    closed: bool,
}

impl Group {
    fn own(&self, id: GroupId) -> PeerId {
        self.own.unwrap_or(PeerId(id.0 | 1 << 63))
    }
}

/// The term in which every group leads.
const TERM: Term = Term(1);

/// A log in memory. Entries are applied in batches, on a separate thread ([`MemoryLog::new`]) or when the test calls for
/// it ([`MemoryLog::stepped`]).
pub struct MemoryLog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    applier: Arc<dyn Applier>,
    observer: Arc<dyn GroupObserver>,
    disk: MemoryEntries,
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// Locked while a batch is applied, so that batches keep their order.
    applying: Mutex<()>,
    stats: Mutex<LogStats>,
}

#[derive(Default)]
struct Queue {
    proposals: Vec<Proposal>,
    open: BTreeSet<GroupId>,
    stopped: bool,
}

struct Proposal {
    group: GroupId,
    /// `None` for a sync.
    entry: Option<(Bytes, Durability)>,
    done: Done,
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryLog {
    /// An empty log with a thread that applies proposals.
    pub fn new(applier: Arc<dyn Applier>) -> MemoryLog {
        MemoryLog::open(MemoryEntries::default(), applier)
    }

    /// As [`MemoryLog::new`], over the entries of an earlier log.
    pub fn open(disk: MemoryEntries, applier: Arc<dyn Applier>) -> MemoryLog {
        MemoryLog::observed(disk, applier, Arc::new(Noop))
    }

    /// As [`MemoryLog::open`]; `observer` is notified that every group leads.
    pub fn observed(
        disk: MemoryEntries,
        applier: Arc<dyn Applier>,
        observer: Arc<dyn GroupObserver>,
    ) -> MemoryLog {
        let mut log = MemoryLog::without_thread(disk, applier, observer);
        let shared = Arc::clone(&log.shared);
        log.thread = Some(std::thread::spawn(move || shared.run()));
        log
    }

    /// A log without a thread: nothing is applied or answered until [`MemoryLog::step`].
    pub fn stepped(disk: MemoryEntries, applier: Arc<dyn Applier>) -> MemoryLog {
        MemoryLog::without_thread(disk, applier, Arc::new(Noop))
    }

    fn without_thread(
        disk: MemoryEntries,
        applier: Arc<dyn Applier>,
        observer: Arc<dyn GroupObserver>,
    ) -> MemoryLog {
        let shared = Shared {
            applier,
            observer,
            disk,
            queue: Mutex::default(),
            arrived: Condvar::new(),
            applying: Mutex::default(),
            stats: Mutex::default(),
        };
        MemoryLog { shared: Arc::new(shared), thread: None }
    }

    /// Applies and answers everything proposed so far; returns how many proposals that were.
    pub fn step(&self) -> usize {
        self.shared.drain()
    }
}

impl Shared {
    fn status(&self, id: GroupId) -> Option<GroupStatus> {
        if !hold(&self.queue).open.contains(&id) {
            return None;
        }
        let (last, own) = hold(&self.disk.groups).get(&id).map(|group| (group.last, group.own(id)))?;
        Some(GroupStatus {
            own,
            role: Role::Leader { term: TERM },
            start: Lsn(0),
            last,
            last_term: TERM,
            committed: last,
            durable: last,
            applied: self.applier.applied(id),
            needs_rows: false,
            members: Members::first(vec![own]),
            members_durable: true,
            peers: Vec::new(),
        })
    }

    fn run(&self) {
        loop {
            let mut queue = hold(&self.queue);
            while queue.proposals.is_empty() && !queue.stopped {
                queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            if queue.proposals.is_empty() {
                return;
            }
            drop(queue);
            self.drain();
        }
    }

    fn drain(&self) -> usize {
        let _one_at_a_time = hold(&self.applying);
        let (proposals, open) = {
            let mut queue = hold(&self.queue);
            (std::mem::take(&mut queue.proposals), queue.open.clone())
        };
        let count = proposals.len();
        let mut batch = Vec::with_capacity(count);
        let mut answers: Vec<(Done, Result<Lsn, ProposeError>)> = Vec::with_capacity(count);
        for proposal in proposals {
            let answer = match open.contains(&proposal.group) {
                true => Ok(self.append(proposal.group, proposal.entry, &mut batch)),
                false => Err(Refusal::NotOpen(proposal.group).into()),
            };
            answers.push((proposal.done, answer));
        }
        let applied = if batch.is_empty() { Ok(()) } else { self.applier.apply(&batch) };
        for (done, answer) in answers {
            match (&applied, answer) {
                (Err(cause), Ok(_)) => done(Err(Interruption::Apply(cause.0.clone()).into())),
                (_, answer) => done(answer),
            }
        }
        count
    }

    fn append(&self, group: GroupId, entry: Option<(Bytes, Durability)>, batch: &mut Vec<Entry>) -> Lsn {
        let mut groups = hold(&self.disk.groups);
        let log = groups.entry(group).or_default();
        let Some((bytes, durability)) = entry else { return log.last };
        log.last.0 += 1;
        log.entries.push((log.last, bytes.clone()));
        let mut stats = hold(&self.stats);
        stats.appends += 1;
        stats.append_bytes += bytes.len() as u64;
        match durability {
            Durability::Hard => stats.acks_hard += 1,
            Durability::Soft => stats.acks_soft += 1,
        }
        batch.push(Entry { group, lsn: log.last, payload: bytes });
        log.last
    }

    fn push(&self, proposal: Proposal) {
        let mut queue = hold(&self.queue);
        queue.proposals.push(proposal);
        self.arrived.notify_one();
    }
}

impl Log for MemoryLog {
    fn open_group(&self, id: GroupId, applied: Lsn, initial: InitialConfig) -> Result<(), LogError> {
        let _one_at_a_time = hold(&self.shared.applying);
        if hold(&self.shared.queue).open.contains(&id) {
            return Err(LogError::AlreadyOpen(id));
        }
        let replay: Vec<Entry> = {
            let mut groups = hold(&self.shared.disk.groups);
            let group = groups.entry(id).or_default();
            if group.closed {
                return Err(LogError::Tombstone(id));
            }
            if let InitialConfig::Bootstrap { own, .. }
            | InitialConfig::BootstrapEmpty { own, .. }
            | InitialConfig::Joining { own } = initial
            {
                group.own.get_or_insert(own);
            }
            // As after an election: one position that no applier sees.
            let end = group.last.max(applied);
            let entries = group.entries.iter().filter(|(lsn, _)| *lsn > applied);
            let replay =
                entries.map(|(lsn, bytes)| Entry { group: id, lsn: *lsn, payload: bytes.clone() }).collect();
            group.last = Lsn(end.0 + 1);
            replay
        };
        if !replay.is_empty() {
            self.shared.applier.apply(&replay)?;
        }
        hold(&self.shared.queue).open.insert(id);
        self.shared.observer.role_changed(id, Role::Leader { term: TERM });
        Ok(())
    }

    fn close_group(&self, id: GroupId) -> Result<(), LogError> {
        if !hold(&self.shared.queue).open.contains(&id) {
            return Err(LogError::NotOpen(id));
        }
        self.shared.drain();
        hold(&self.shared.queue).open.remove(&id);
        let mut groups = hold(&self.shared.disk.groups);
        groups.insert(id, Group { closed: true, ..Group::default() });
        Ok(())
    }

    fn leave_group(&self, id: GroupId) -> Result<(), LogError> {
        self.close_group(id)?;
        hold(&self.shared.disk.groups).remove(&id);
        Ok(())
    }

    fn propose_in(&self, id: GroupId, term: Option<Term>, entry: Bytes, durability: Durability, done: Done) {
        if term.is_some_and(|term| term != TERM) {
            let leader = hold(&self.shared.disk.groups).get(&id).map(|group| group.own(id));
            return done(Err(Refusal::NotLeader { leader }.into()));
        }
        self.shared.push(Proposal { group: id, entry: Some((entry, durability)), done });
    }

    /// No effect: there are no other replicas.
    fn set_acks(&self, _id: GroupId, _acks: Acks) {}

    fn sync(&self, id: GroupId, done: Done) {
        self.shared.push(Proposal { group: id, entry: None, done });
    }

    /// No effect: a group of one receives no messages.
    fn receive(&self, _letter: Message) {}

    fn read_index(&self, id: GroupId, done: Done) {
        self.sync(id, done);
    }

    fn change_members(&self, _id: GroupId, _change: MemberChange, done: Done) {
        done(Err(Refusal::Invalid.into()));
    }

    /// No effect: there is no other replica to hand over to.
    fn transfer(&self, _id: GroupId, _to: PeerId) {}

    /// No effect: it leads already.
    fn campaign(&self, _id: GroupId) {}

    /// No effect: there are no other replicas.
    fn peers_unreachable(&self, _peers: Vec<PeerId>) {}

    /// No effect: there are no other replicas.
    fn peers_reachable(&self, _peers: Vec<PeerId>) {}

    fn log_base(&self, id: GroupId, at: Lsn, done: LogBaseDone) {
        done(match hold(&self.shared.disk.groups).get(&id) {
            Some(group) if at <= group.last => Ok(LogBase {
                at,
                term: TERM,
                members: Members::first(vec![group.own(id)]),
                ahead: Vec::new(),
            }),
            _ => Err(Refusal::Invalid.into()),
        });
    }

    fn begin_restore(&self, id: GroupId) -> Result<(), LogError> {
        self.group_status(id).map(drop)
    }

    fn finish_restore(&self, id: GroupId, base: LogBase) -> Result<(), LogError> {
        let _one_at_a_time = hold(&self.shared.applying);
        let mut groups = hold(&self.shared.disk.groups);
        let group = groups.get_mut(&id).ok_or(LogError::NotOpen(id))?;
        group.last = group.last.max(base.at);
        Ok(())
    }

    /// No effect: there is only one replica.
    fn reset_members(&self, id: GroupId, _members: Members) -> Result<Members, LogError> {
        Ok(self.group_status(id)?.members)
    }

    fn group_statuses(&self, ids: &[GroupId]) -> Result<Vec<Option<GroupStatus>>, LogError> {
        Ok(ids.iter().map(|id| self.shared.status(*id)).collect())
    }

    fn stats(&self) -> LogStats {
        let mut stats = hold(&self.shared.stats).clone();
        stats.groups = hold(&self.shared.queue).open.len() as u64;
        stats
    }
}

impl Drop for MemoryLog {
    fn drop(&mut self) {
        hold(&self.shared.queue).stopped = true;
        self.shared.arrived.notify_all();
        match self.thread.take() {
            // A panic of the applier was already reported on the thread itself.
            Some(thread) => drop(thread.join()),
            None => drop(self.shared.drain()),
        }
    }
}
