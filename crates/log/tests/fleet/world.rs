//! The simulated fleet: its nodes, proposers and network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use io::sim::{SimClock, SimFiles, SimRandom};
use io::{Clock, Nanos, Random};

use super::node::{Engine, Node, Rows, hold};
use crate::contract::Message;
use crate::error::{LogError, ProposeError};
use crate::log_base::LogBase;
use crate::lsn::{Durability, GroupId, Lsn, Term};
use crate::member::{GroupStatus, InitialConfig, PeerId, Role};
use crate::mutant::{self, Mutant};
use crate::proposal::{Proposal, Work};

pub(super) const GROUP: GroupId = GroupId(7);

pub(super) type Slot<T> = Arc<Mutex<Option<T>>>;
pub(super) type Answer = Slot<Result<Lsn, ProposeError>>;

pub(super) struct Proposed {
    pub payload: Bytes,
    pub durability: Durability,
    pub answer: Answer,
}

pub(super) struct Read {
    /// The last position that was acknowledged when the read began.
    pub floor: Lsn,
    pub node: usize,
    pub answer: Answer,
}

/// A copy includes uncommitted entries only after this time: ten ticks, of which the first has begun.
const COMMIT_WAIT: Duration = Duration::from_millis(900);

/// Rows on their way from a leader to another node.
pub(super) struct Copy {
    pub to: PeerId,
    pub rows: Rows,
    pub base: Slot<Result<LogBase, ProposeError>>,
    pub requested: Nanos,
}

/// The state of one seed.
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) clock: SimClock,
    pub(super) random: SimRandom,
    pub(super) flying: Vec<Message>,
    /// Pairs of nodes whose connection is cut, in this direction.
    pub(super) cut: BTreeSet<(usize, usize)>,
    pub(super) proposed: Vec<Proposed>,
    pub(super) reads: Vec<Read>,
    pub(super) copies: Vec<Copy>,
    pub(super) leaders: BTreeMap<Term, PeerId>,
    /// The newest payload applied at each position on any node.
    pub(super) applied: BTreeMap<Lsn, Bytes>,
    pub(super) loses_power: bool,
    pub(super) power_losses: u64,
    pub(super) next_payload: u64,
    /// The clock advances by at most this much at once.
    pub(super) tick_ms_max: u64,
    pub(super) expelled: BTreeSet<PeerId>,
    /// The last position that was acknowledged before healing.
    pub(super) healed_after: Lsn,
    /// How often the rows of a first member became invalid.
    pub(super) invalidated: u64,
    /// Disks lose log entries whose rows are durable.
    pub(super) disks_lose_data: bool,
    /// Terms in which a replica without rows was elected.
    pub(super) stand_in_terms: BTreeSet<Term>,
    pub(super) trace: u64,
}

/// An earlier copy of a node's disk.
pub(super) struct Backup {
    files: SimFiles,
    rows: Rows,
    copied: Lsn,
}

impl World {
    /// Three to five nodes and a network, with all randomness drawn from `seed`.
    pub fn new(seed: u64) -> World {
        let random = SimRandom::new(seed ^ 0x5eed);
        let nodes = 3 + random.below(3) as usize;
        let mut world = World {
            seed,
            nodes: (0..nodes as u64).map(|nth| Node::new(seed * 10 + nth)).collect(),
            clock: SimClock::new(),
            flying: Vec::new(),
            cut: BTreeSet::new(),
            proposed: Vec::new(),
            reads: Vec::new(),
            copies: Vec::new(),
            leaders: BTreeMap::new(),
            applied: BTreeMap::new(),
            loses_power: random.one_in(2),
            power_losses: 0,
            next_payload: 0,
            tick_ms_max: [30, 100, 400][random.below(3) as usize],
            expelled: BTreeSet::new(),
            healed_after: Lsn(0),
            invalidated: 0,
            disks_lose_data: false,
            stand_in_terms: BTreeSet::new(),
            trace: 0,
            random,
        };
        let voters: Vec<PeerId> = (0..3).map(|_| world.new_peer()).collect();
        for (node, own) in world.nodes.iter_mut().zip(&voters) {
            node.peer = Some(*own);
            node.initial = InitialConfig::Bootstrap { own: *own, voters: voters.clone() };
        }
        world
    }

    /// A fleet of the three first members only.
    pub(super) fn of_three(seed: u64) -> Result<World, String> {
        let mut world = World::new(seed);
        world.nodes.truncate(3);
        for nth in 0..3 {
            world.start(nth)?;
        }
        Ok(world)
    }

    pub(super) fn new_peer(&self) -> PeerId {
        PeerId(self.random.next_u64() >> 2 | 1)
    }

    /// A hash of all events.
    pub fn trace(&self) -> u64 {
        self.trace
    }

    pub(super) fn start(&mut self, nth: usize) -> Result<(), String> {
        let started = self.nodes[nth].start(GROUP, &self.clock, &self.random);
        match started {
            // It was removed, and its process ended before its owner was notified.
            Err(LogError::Removed { .. }) => self.forget_replica(nth),
            Ok(()) if self.nodes[nth].rows_are_ahead && !self.disks_lose_data => {
                Err(format!("the rows of node {nth} are ahead of its log"))
            }
            other => other.map_err(|cause| format!("node {nth} does not start: {cause}")),
        }
    }

    pub(super) fn forget_replica(&mut self, nth: usize) -> Result<(), String> {
        let node = &mut self.nodes[nth];
        node.engine.replace(&Rows::new(), Lsn(0));
        let old = node.peer.take();
        node.process = None;
        if mutant::is_active(Mutant::ReusePeer) {
            node.initial = InitialConfig::Joining { own: old.unwrap_or(PeerId(1)) };
        }
        self.start(nth)
    }

    pub(super) fn propose_on(&mut self, nth: usize, durability: Durability) {
        self.next_payload += 1;
        let filling = "x".repeat(self.random.below(200) as usize);
        let payload = Bytes::from(format!("{}/{filling}", self.next_payload));
        let answer = self.propose_work(nth, Work::Entry(payload.clone(), durability));
        if let Some(answer) = answer {
            self.proposed.push(Proposed { payload, durability, answer });
        }
    }

    pub(super) fn propose_work(&mut self, nth: usize, work: Work) -> Option<Answer> {
        let process = self.nodes[nth].process.as_mut()?;
        let answer: Answer = Arc::default();
        let slot = Arc::clone(&answer);
        let done = Box::new(move |result| {
            assert!(hold(&slot).replace(result).is_none(), "a proposal is answered once");
        });
        process.inbox.push(Proposal { group: GROUP, term: None, work, done });
        Some(answer)
    }

    pub(super) fn leads(&self, nth: usize) -> bool {
        matches!(self.nodes[nth].role, Some(Role::Leader { .. }))
    }

    /// The last position that was acknowledged.
    pub(super) fn acknowledged(&self) -> Lsn {
        let acknowledged = self.proposed.iter().filter_map(|proposed| match &*hold(&proposed.answer) {
            Some(Ok(lsn)) => Some(*lsn),
            _ => None,
        });
        acknowledged.max().unwrap_or_default()
    }

    pub(super) fn status(&self, nth: usize) -> Option<GroupStatus> {
        self.nodes[nth].process.as_ref()?.runner.group_status(GROUP).ok()
    }

    pub(super) fn node_of(&self, peer: PeerId) -> Option<usize> {
        self.nodes.iter().position(|node| node.peer == Some(peer))
    }

    pub(super) fn step_log(&mut self, nth: usize) {
        if let Some(process) = &mut self.nodes[nth].process {
            process.runner.step(&mut process.inbox);
        }
    }

    pub(super) fn begin_sync(&mut self, nth: usize) {
        let now = self.random.one_in(2);
        let Some(process) = &mut self.nodes[nth].process else { return };
        if process.syncing.is_none()
            && let Some(job) = process.runner.begin_sync()
        {
            let ran = now.then(|| job.run());
            process.syncing = Some((job, ran));
        }
    }

    pub(super) fn flush(&mut self, nth: usize) {
        let node = &mut self.nodes[nth];
        let Some(process) = &mut node.process else { return };
        match process.flushing.take() {
            Some(mut job) => {
                let result = job.run(&*node.engine);
                process.runner.end_flush(&job, result);
            }
            None => process.flushing = process.runner.begin_flush(),
        }
    }

    /// Flushes the engine, if the log has grown enough for that, and deletes entries from the log.
    pub(super) fn shorten_log(&mut self, nth: usize) {
        self.flush(nth);
        self.flush(nth);
    }

    /// The rows of a node become durable although its log is not: the disk reports a success that did not happen.
    pub(super) fn flush_ahead(&mut self, nth: usize) {
        self.disks_lose_data = true;
        let rows = hold(&self.nodes[nth].engine.memory).clone();
        *hold(&self.nodes[nth].engine.durable) = rows;
    }

    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }

    pub(super) fn pass_exactly(&mut self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
        for node in &mut self.nodes {
            if let Some(process) = &mut node.process {
                process.runner.tick();
            }
        }
    }

    pub(super) fn collect(&mut self) {
        for node in &self.nodes {
            self.flying.append(&mut hold(&node.outbox.messages));
        }
    }

    pub(super) fn deliver_message(&mut self, message: Message) {
        let (from, to) = (self.node_of(message.from), self.node_of(message.to));
        let Some(to) = to else { return };
        if from.is_some_and(|from| self.cut.contains(&(from, to))) {
            return;
        }
        self.trace = self.trace.rotate_left(5) ^ message.to.0 ^ message.body.len() as u64;
        if let Some(process) = &mut self.nodes[to].process {
            process.runner.receive(&mut vec![message]);
        }
    }

    pub(super) fn deliver_all(&mut self) {
        self.collect();
        for message in std::mem::take(&mut self.flying) {
            self.deliver_message(message);
        }
    }

    pub(super) fn cut_off(&mut self, nth: usize) {
        let others = 0..self.nodes.len();
        self.cut = others.flat_map(|other| [(nth, other), (other, nth)]).collect();
    }

    /// Carries copies of rows from leaders to the replicas that need them.
    pub(super) fn carry_copies(&mut self) -> Result<(), String> {
        for Copy { to, mut rows, base, requested } in std::mem::take(&mut self.copies) {
            let answer = hold(&base).clone();
            let Some(answer) = answer else {
                self.copies.push(Copy { to, rows, base, requested });
                continue;
            };
            let waited = self.clock.now().since(requested);
            if answer.as_ref().is_ok_and(|base| !base.ahead.is_empty()) && waited < COMMIT_WAIT {
                return Err(format!("after {waited:?} a copy includes entries that may still be committed"));
            }
            let (Ok(base), Some(nth)) = (answer, self.node_of(to)) else { continue };
            let node = &mut self.nodes[nth];
            node.end_sync();
            let Some(process) = &mut node.process else { continue };
            if process.runner.begin_restore(GROUP).is_err() {
                continue;
            }
            if mutant::is_active(Mutant::DropRow) && rows.len() > 1 {
                let first = rows.first_key_value().map(|(lsn, _)| *lsn);
                first.map(|lsn| rows.remove(&lsn));
            }
            node.engine.replace(&rows, base.rows_lsn());
            if self.random.one_in(5) {
                continue;
            }
            match process.runner.finish_restore(GROUP, &base) {
                Ok(()) => node.needs_rows = false,
                // The copy is older than the replica's own rows, or from another leader.
                Err(LogError::Gap { .. } | LogError::OtherEntries(_) | LogError::Stopped) => {}
                Err(other) => return Err(format!("node {nth} is not restored: {other}")),
            }
        }
        Ok(())
    }

    pub(super) fn stop_without_power(&mut self, nth: usize) {
        self.power_losses += 1;
        let node = &mut self.nodes[nth];
        (node.process, node.role) = (None, None);
        node.files.crash();
    }

    pub(super) fn lose_power(&mut self, nth: usize) -> Result<(), String> {
        self.stop_without_power(nth);
        self.start(nth)
    }

    /// Stops a node, copies its disk, and starts it again.
    pub(super) fn back_up(&mut self, nth: usize) -> Result<Backup, String> {
        let node = &mut self.nodes[nth];
        (node.process, node.role) = (None, None);
        node.files.end_process();
        let (rows, copied) = (hold(&node.engine.durable).clone(), *hold(&node.engine.copied));
        let backup = Backup { files: node.files.copy(), rows, copied };
        self.start(nth)?;
        Ok(backup)
    }

    /// Stops a node, restores an earlier copy of its disk, and starts it.
    pub(super) fn put_back(&mut self, nth: usize, backup: Backup) -> Result<(), String> {
        let node = &mut self.nodes[nth];
        (node.process, node.role) = (None, None);
        node.files = backup.files;
        let engine = Engine::default();
        engine.replace(&backup.rows, backup.copied);
        node.engine = Arc::new(engine);
        self.start(nth)
    }
}
