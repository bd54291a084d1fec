//! Everything around the nodes: who writes what, what the network does, what may happen next.

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
    // What had been acknowledged when it was asked.
    pub floor: Lsn,
    pub node: usize,
    pub answer: Answer,
}

/// Before that nothing goes with a copy that is not committed: ten ticks, of which the first is under way.
const COMMITTED_WITHIN: Duration = Duration::from_millis(900);

/// Rows on their way from a leader to another node.
pub(super) struct Copy {
    pub to: PeerId,
    pub rows: Rows,
    pub base: Slot<Result<LogBase, ProposeError>>,
    pub asked: Nanos,
}

/// One seed.
pub(super) struct World {
    seed: u64,
    pub(super) nodes: Vec<Node>,
    clock: SimClock,
    pub(super) random: SimRandom,
    pub(super) flying: Vec<Message>,
    // Pairs of nodes that cannot reach each other, in this direction.
    pub(super) cut: BTreeSet<(usize, usize)>,
    pub(super) proposed: Vec<Proposed>,
    pub(super) reads: Vec<Read>,
    pub(super) copies: Vec<Copy>,
    pub(super) leaders: BTreeMap<Term, PeerId>,
    // The newest payload applied at each position, anywhere.
    pub(super) applied: BTreeMap<Lsn, Bytes>,
    loses_power: bool,
    pub(super) power_losses: u64,
    next_payload: u64,
    // Time passes by up to so much between two messages.
    tempo_ms: u64,
    pub(super) expelled: BTreeSet<PeerId>,
    // What was acknowledged last before everything was healed.
    pub(super) healed_after: Lsn,
    // Founders whose rows were void.
    pub(super) voided: u64,
    // Logs lose what was to be durable before the rows.
    pub(super) disks_lie: bool,
    // Terms in which a replica without rows was elected.
    pub(super) caretakers: BTreeSet<Term>,
    pub(super) trace: u64,
}

impl World {
    /// Three to five nodes and a network, all chance drawn from `seed`.
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
            tempo_ms: [30, 100, 400][random.below(3) as usize],
            expelled: BTreeSet::new(),
            healed_after: Lsn(0),
            voided: 0,
            disks_lie: false,
            caretakers: BTreeSet::new(),
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

    /// Lives through the seed, heals everything, and looks; how many entries were acknowledged.
    pub fn run(mut self) -> Result<u64, String> {
        let broken = |seed: u64, what: String| format!("seed {seed}: {what}");
        let seed = self.seed;
        self.run_steps().and_then(|()| self.heal()).map_err(|what| broken(seed, what))?;
        let acknowledged = |proposed: &&Proposed| matches!(*hold(&proposed.answer), Some(Ok(_)));
        Ok(self.proposed.iter().filter(acknowledged).count() as u64)
    }

    /// A number that differs if anything happened otherwise.
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Starts every node and lets the storm go on to its end; fails with what went wrong first.
    pub fn run_steps(&mut self) -> Result<(), String> {
        for nth in 0..self.nodes.len() {
            self.start(nth)?;
        }
        self.storm(STEPS)
    }

    /// So many things happen.
    pub(super) fn storm(&mut self, steps: u64) -> Result<(), String> {
        for _ in 0..steps {
            self.step()?;
            self.look()?;
        }
        Ok(())
    }

    pub(super) fn start(&mut self, nth: usize) -> Result<(), String> {
        let started = self.nodes[nth].start(GROUP, &self.clock, &self.random);
        match started {
            // It had left, and its process ended before its owner heard of it.
            Err(LogError::Removed { .. }) => self.forget_replica(nth),
            Ok(()) if self.nodes[nth].rows_are_ahead && !self.disks_lie => {
                Err(format!("the rows of node {nth} are ahead of its log"))
            }
            other => other.map_err(|cause| format!("node {nth} does not start: {cause}")),
        }
    }

    pub(super) fn forget_replica(&mut self, nth: usize) -> Result<(), String> {
        let node = &mut self.nodes[nth];
        node.engine.replace(&Rows::new(), Lsn(0));
        let old = node.peer.take();
        node.life = None;
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
            55..=64 => self.turn(nth),
            65..=74 => self.begin_sync(nth),
            75..=82 => self.nodes[nth].end_sync(),
            83..=88 => self.pass_time(self.tempo_ms),
            89 | 90 => self.read(nth),
            99 => self.flush(nth),
            91 => self.cut_or_heal(),
            92 => return self.change_members(),
            93 | 94 => return self.carry_copies(),
            95 => self.ask_leader(nth),
            96 | 97 => return self.stop_or_start(nth),
            98 => self.campaign(nth),
            _ => {}
        }
        Ok(())
    }

    fn propose(&mut self, nth: usize) {
        // An old leader may not know that there is a new one.
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
        let answer = self.ask(nth, Work::Entry(payload.clone(), durability));
        if let Some(answer) = answer {
            self.proposed.push(Proposed { payload, durability, answer });
        }
    }

    pub(super) fn ask(&mut self, nth: usize, work: Work) -> Option<Answer> {
        let life = self.nodes[nth].life.as_mut()?;
        let answer: Answer = Arc::default();
        let told = Arc::clone(&answer);
        let done = Box::new(move |result| {
            assert!(hold(&told).replace(result).is_none(), "a proposal is answered once");
        });
        life.inbox.push(Proposal { group: GROUP, term: None, work, done });
        Some(answer)
    }

    pub(super) fn leads(&self, nth: usize) -> bool {
        matches!(self.nodes[nth].role, Some(Role::Leader { .. }))
    }

    fn read(&mut self, nth: usize) {
        let floor = self.acknowledged();
        if let Some(answer) = self.ask(nth, Work::Read) {
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
        self.nodes[nth].life.as_ref()?.runner.group_status(GROUP).ok()
    }

    pub(super) fn turn(&mut self, nth: usize) {
        if let Some(life) = &mut self.nodes[nth].life {
            life.runner.step(&mut life.inbox);
        }
    }

    pub(super) fn begin_sync(&mut self, nth: usize) {
        let now = self.random.one_in(2);
        let Some(life) = &mut self.nodes[nth].life else { return };
        if life.syncing.is_none()
            && let Some(syncing) = life.runner.begin_sync()
        {
            let ran = now.then(|| syncing.run());
            life.syncing = Some((syncing, ran));
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
            if let Some(life) = &mut node.life {
                life.runner.tick();
            }
        }
    }

    /// A message arrives, or is lost, or arrives and comes again.
    fn deliver(&mut self) {
        self.collect();
        if self.flying.is_empty() {
            return;
        }
        // Mostly the oldest: total disorder is a network of its own.
        let count = self.flying.len() as u64;
        let nth = if self.random.one_in(4) { self.random.below(count) } else { 0 } as usize;
        let message = match self.random.one_in(20) {
            true => self.flying[nth].clone(),
            false => self.flying.remove(nth),
        };
        if !self.random.one_in(25) {
            self.hand_over(message);
        }
    }

    pub(super) fn collect(&mut self) {
        for node in &self.nodes {
            self.flying.append(&mut hold(&node.post.messages));
        }
    }

    pub(super) fn place_of(&self, peer: PeerId) -> Option<usize> {
        self.nodes.iter().position(|node| node.peer == Some(peer))
    }

    pub(super) fn hand_over(&mut self, message: Message) {
        let (from, to) = (self.place_of(message.from), self.place_of(message.to));
        let Some(to) = to else { return };
        if from.is_some_and(|from| self.cut.contains(&(from, to))) {
            return;
        }
        self.trace = self.trace.rotate_left(5) ^ message.to.0 ^ message.body.len() as u64;
        if let Some(life) = &mut self.nodes[to].life {
            life.runner.receive(&mut vec![message]);
        }
    }

    pub(super) fn flush(&mut self, nth: usize) {
        let node = &mut self.nodes[nth];
        let Some(life) = &mut node.life else { return };
        match life.flushing.take() {
            Some(flushing) => {
                let result = node.engine.flush();
                life.runner.end_flush(&flushing, result);
            }
            None => life.flushing = life.runner.begin_flush(),
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

    /// Rows go from leaders to those who need them.
    pub(super) fn carry_copies(&mut self) -> Result<(), String> {
        for Copy { to, mut rows, base, asked } in std::mem::take(&mut self.copies) {
            let told = hold(&base).clone();
            let Some(told) = told else {
                self.copies.push(Copy { to, rows, base, asked });
                continue;
            };
            let waited = self.clock.now().since(asked);
            if told.as_ref().is_ok_and(|base| !base.ahead.is_empty()) && waited < COMMITTED_WITHIN {
                return Err(format!("after {waited:?} a copy goes with entries that may yet be committed"));
            }
            let (Ok(base), Some(nth)) = (told, self.place_of(to)) else { continue };
            let node = &mut self.nodes[nth];
            node.end_sync();
            let Some(life) = &mut node.life else { continue };
            if life.runner.begin_restore(GROUP).is_err() {
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
            match life.runner.finish_restore(GROUP, &base) {
                Ok(()) => node.needs_rows = false,
                // Older than what the replica has by itself, or of another leader.
                Err(LogError::Gap { .. } | LogError::OtherEntries(_) | LogError::Stopped) => {}
                Err(other) => return Err(format!("node {nth} is not restored: {other}")),
            }
        }
        Ok(())
    }

    fn ask_leader(&mut self, nth: usize) {
        let Some(leader) = (0..self.nodes.len()).find(|nth| self.leads(*nth)) else { return };
        let to = self.nodes[nth].peer;
        if let (Some(to), Some(life)) = (to, &mut self.nodes[leader].life) {
            life.runner.request(Request::Transfer(GROUP, to));
        }
    }

    /// Two at once, so that votes are split.
    fn campaign(&mut self, nth: usize) {
        let other = self.random.below(self.nodes.len() as u64) as usize;
        for nth in [nth, other] {
            if let Some(life) = &mut self.nodes[nth].life {
                life.runner.request(Request::Campaign(GROUP));
            }
        }
        if self.random.one_in(2) {
            return;
        }
        // While they do, somebody starts anew between two messages, and has it all on the disk.
        for _ in 0..self.random.below(20) {
            self.deliver();
        }
        for node in 0..self.nodes.len() {
            self.begin_sync(node);
            self.nodes[node].end_sync();
        }
        let third = self.random.below(self.nodes.len() as u64) as usize;
        if third != nth && third != other && self.nodes[third].life.is_some() {
            self.nodes[third].life = None;
            self.nodes[third].files.end_process();
            // Its disk is fine, so it starts; if not, the next look finds it stopped.
            drop(self.start(third));
        }
    }

    fn stop_or_start(&mut self, nth: usize) -> Result<(), String> {
        let down = self.nodes.iter().filter(|node| node.life.is_none()).count();
        if self.nodes[nth].life.is_none() {
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
        node.life = None;
        node.role = None;
        self.power_losses += u64::from(loses_power);
        match loses_power {
            true => node.files.crash(),
            false => node.files.end_process(),
        }
    }
}
