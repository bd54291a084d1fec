//! The simulated fleet: its nodes, proposers and network, and the random events of a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use io::sim::{SimClock, SimRandom};
use io::{Clock, Nanos, Random};

use super::node::{Node, Rows, hold};
use crate::contract::{Applier, Message};
use crate::error::{LogError, ProposeError};
use crate::log_base::LogBase;
use crate::lsn::{Durability, GroupId, Lsn, Term};
use crate::member::{GroupStatus, InitialConfig, PeerId, Role};
use crate::mutant::{self, Mutant};
use crate::proposal::{Proposal, Request, Work};

pub(super) const GROUP: GroupId = GroupId(7);
const STEPS: u64 = 2500;

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
    seed: u64,
    pub(super) nodes: Vec<Node>,
    clock: SimClock,
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
    loses_power: bool,
    pub(super) power_losses: u64,
    next_payload: u64,
    /// The clock advances by at most this much at once.
    tick_ms_max: u64,
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

    pub(super) fn new_peer(&self) -> PeerId {
        PeerId(self.random.next_u64() >> 2 | 1)
    }

    /// Runs the seed, heals everything, and checks; returns how many entries were acknowledged.
    pub fn run(mut self) -> Result<u64, String> {
        let broken = |seed: u64, what: String| format!("seed {seed}: {what}");
        let seed = self.seed;
        self.run_steps().and_then(|()| self.heal()).map_err(|what| broken(seed, what))?;
        let acknowledged = |proposed: &&Proposed| matches!(*hold(&proposed.answer), Some(Ok(_)));
        Ok(self.proposed.iter().filter(acknowledged).count() as u64)
    }

    /// A hash of all events.
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Starts every node and runs all random events; fails with the first violation.
    pub fn run_steps(&mut self) -> Result<(), String> {
        for nth in 0..self.nodes.len() {
            self.start(nth)?;
        }
        self.run_events(STEPS)
    }

    /// Runs this many random events.
    pub(super) fn run_events(&mut self, steps: u64) -> Result<(), String> {
        for _ in 0..steps {
            self.step()?;
            self.check()?;
        }
        Ok(())
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

    fn step(&mut self) -> Result<(), String> {
        let nth = self.random.below(self.nodes.len() as u64) as usize;
        match self.random.below(100) {
            0..=19 => self.propose(nth),
            20..=54 => self.deliver(),
            55..=64 => self.step_log(nth),
            65..=74 => self.begin_sync(nth),
            75..=82 => self.nodes[nth].end_sync(),
            83..=88 => self.pass_time(self.tick_ms_max),
            89 | 90 => self.read(nth),
            99 => self.flush(nth),
            91 => self.cut_or_heal(),
            92 => return self.change_members(),
            93 | 94 => return self.carry_copies(),
            95 => self.transfer(nth),
            96 | 97 => return self.stop_or_start(nth),
            98 => self.campaign(nth),
            _ => {}
        }
        Ok(())
    }

    fn propose(&mut self, nth: usize) {
        // A deposed leader may not know of the new one.
        let leaders: Vec<usize> = (0..self.nodes.len()).filter(|nth| self.leads(*nth)).collect();
        let leader = leaders.get(self.random.below(leaders.len() as u64) as usize).copied();
        let nth = leader.filter(|_| !self.random.one_in(8)).unwrap_or(nth);
        let durability = if self.random.one_in(2) { Durability::Hard } else { Durability::Soft };
        self.propose_on(nth, durability);
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

    fn read(&mut self, nth: usize) {
        let floor = self.acknowledged();
        if let Some(answer) = self.propose_work(nth, Work::Read) {
            self.reads.push(Read { floor, node: nth, answer });
        }
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

    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn pass_time(&mut self, ms_max: u64) {
        self.pass_exactly(self.random.below(ms_max));
    }

    pub(super) fn pass_exactly(&mut self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
        for node in &mut self.nodes {
            if let Some(process) = &mut node.process {
                process.runner.tick();
            }
        }
    }

    /// Delivers, loses or repeats a message.
    fn deliver(&mut self) {
        self.collect();
        if self.flying.is_empty() {
            return;
        }
        // Usually the oldest one, as in a network with little reordering.
        let count = self.flying.len() as u64;
        let nth = if self.random.one_in(4) { self.random.below(count) } else { 0 } as usize;
        let message = match self.random.one_in(20) {
            true => self.flying[nth].clone(),
            false => self.flying.remove(nth),
        };
        if !self.random.one_in(25) {
            self.deliver_message(message);
        }
    }

    pub(super) fn collect(&mut self) {
        for node in &self.nodes {
            self.flying.append(&mut hold(&node.outbox.messages));
        }
    }

    pub(super) fn node_of(&self, peer: PeerId) -> Option<usize> {
        self.nodes.iter().position(|node| node.peer == Some(peer))
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

    pub(super) fn flush(&mut self, nth: usize) {
        let node = &mut self.nodes[nth];
        let Some(process) = &mut node.process else { return };
        match process.flushing.take() {
            Some(job) => {
                let result = node.engine.flush();
                process.runner.end_flush(&job, result);
            }
            None => process.flushing = process.runner.begin_flush(),
        }
    }

    fn cut_or_heal(&mut self) {
        if self.random.one_in(2) {
            return self.cut.clear();
        }
        let count = self.nodes.len() as u64;
        let (one, other) = (self.random.below(count) as usize, self.random.below(count) as usize);
        match self.random.below(3) {
            0 => self.cut.extend([(one, other)]),
            1 => self.cut.extend([(one, other), (other, one)]),
            _ => {
                let leader = (0..self.nodes.len()).find(|nth| self.leads(*nth)).unwrap_or(one);
                self.cut.extend((0..self.nodes.len()).flat_map(|nth| [(leader, nth), (nth, leader)]));
            }
        }
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

    fn transfer(&mut self, nth: usize) {
        let Some(leader) = (0..self.nodes.len()).find(|nth| self.leads(*nth)) else { return };
        let to = self.nodes[nth].peer;
        if let (Some(to), Some(process)) = (to, &mut self.nodes[leader].process) {
            process.runner.request(Request::Transfer(GROUP, to));
        }
    }

    /// Two nodes stand for election at once, which splits the votes.
    fn campaign(&mut self, nth: usize) {
        let other = self.random.below(self.nodes.len() as u64) as usize;
        for nth in [nth, other] {
            if let Some(process) = &mut self.nodes[nth].process {
                process.runner.request(Request::Campaign(GROUP));
            }
        }
        if self.random.one_in(2) {
            return;
        }
        // A third node may restart between their messages, with everything on its disk.
        for _ in 0..self.random.below(20) {
            self.deliver();
        }
        for node in 0..self.nodes.len() {
            self.begin_sync(node);
            self.nodes[node].end_sync();
        }
        let third = self.random.below(self.nodes.len() as u64) as usize;
        if third != nth && third != other && self.nodes[third].process.is_some() {
            self.nodes[third].process = None;
            self.nodes[third].files.end_process();
            // Its disk is intact, so it starts. If it does not, the next check finds it stopped.
            drop(self.start(third));
        }
    }

    fn stop_or_start(&mut self, nth: usize) -> Result<(), String> {
        let down = self.nodes.iter().filter(|node| node.process.is_none()).count();
        if self.nodes[nth].process.is_none() {
            return self.start(nth);
        }
        if down * 2 + 1 < self.nodes.len() {
            self.stop(nth);
            if self.random.one_in(2) {
                return self.start(nth);
            }
        }
        Ok(())
    }

    fn stop(&mut self, nth: usize) {
        let loses_power = self.loses_power && self.random.one_in(2);
        let node = &mut self.nodes[nth];
        node.process = None;
        node.role = None;
        self.power_losses += u64::from(loses_power);
        match loses_power {
            true => node.files.crash(),
            false => node.files.end_process(),
        }
    }
}
