//! The random events of a seed.

use super::node::{Rows, hold};
use super::world::{GROUP, Proposed, Read, World};
use crate::lsn::{Durability, Lsn};
use crate::member::{GroupStatus, InitialConfig, MemberChange, PeerId};
use crate::mutant::{self, Mutant};
use crate::proposal::{Request, Work};

const EVENTS: u64 = 2500;

impl World {
    /// Runs the seed, heals everything, and checks; returns how many entries were acknowledged.
    pub fn run(mut self) -> Result<u64, String> {
        let broken = |seed: u64, what: String| format!("seed {seed}: {what}");
        let seed = self.seed;
        self.run_steps().and_then(|()| self.heal()).map_err(|what| broken(seed, what))?;
        let acknowledged = |proposed: &&Proposed| matches!(*hold(&proposed.answer), Some(Ok(_)));
        Ok(self.proposed.iter().filter(acknowledged).count() as u64)
    }

    /// Starts every node and runs all random events; fails with the first violation.
    pub fn run_steps(&mut self) -> Result<(), String> {
        for nth in 0..self.nodes.len() {
            self.start(nth)?;
        }
        self.run_events(EVENTS)
    }

    /// Runs this many random events.
    pub(super) fn run_events(&mut self, steps: u64) -> Result<(), String> {
        for _ in 0..steps {
            self.step()?;
            self.check()?;
        }
        Ok(())
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

    fn read(&mut self, nth: usize) {
        let floor = self.acknowledged();
        if let Some(answer) = self.propose_work(nth, Work::Read) {
            self.reads.push(Read { floor, node: nth, answer });
        }
    }

    fn pass_time(&mut self, ms_max: u64) {
        self.pass_exactly(self.random.below(ms_max));
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

    /// Proposes a random membership change to a leader, and sometimes removes replicas that it no longer needs.
    fn change_members(&mut self) -> Result<(), String> {
        let Some(leader) = (0..self.nodes.len()).find(|nth| self.leads(*nth)) else { return Ok(()) };
        let Some(status) = self.status(leader) else { return Ok(()) };
        self.discard_removed(&status)?;
        let members = status.members;
        let change = match self.random.below(3) {
            0 => {
                let nth = self.random.below(self.nodes.len() as u64) as usize;
                if self.nodes[nth].peer.is_none() {
                    self.join(nth);
                }
                // A replica that was to be removed is never added.
                let peer = self.nodes[nth].peer.filter(|peer| !self.expelled.contains(peer));
                peer.map(MemberChange::AddLearner)
            }
            1 => {
                let caught_up = |peer: &PeerId| {
                    status.peers.iter().any(|its| its.peer == *peer && its.matched.0 + 20 > status.last.0)
                };
                members.learners.into_iter().find(caught_up).map(MemberChange::Promote)
            }
            _ if members.voters.len() > 1 => {
                let nth = self.random.below(members.voters.len() as u64) as usize;
                members.voters.get(nth).copied().map(MemberChange::Remove)
            }
            _ => None,
        };
        if let Some(change) = change {
            if let MemberChange::Remove(peer) = change
                && !mutant::is_active(Mutant::ReusePeer)
            {
                self.expelled.insert(peer);
            }
            self.propose_work(leader, Work::Change(change));
        }
        Ok(())
    }

    /// Removes replicas that a leader no longer needs, as their owner does.
    fn discard_removed(&mut self, status: &GroupStatus) -> Result<(), String> {
        for peer in status.members.removed.iter().filter(|_| status.members_durable) {
            if let Some(nth) = self.node_of(*peer)
                && self.random.one_in(2)
            {
                self.nodes[nth].end_sync();
                if let Some(process) = &mut self.nodes[nth].process {
                    drop(process.runner.leave_group(GROUP));
                    self.forget_replica(nth)?;
                }
            }
        }
        Ok(())
    }

    /// Creates a replica on a node that has none.
    fn join(&mut self, nth: usize) {
        let own = match (&self.nodes[nth].initial, mutant::is_active(Mutant::ReusePeer)) {
            (InitialConfig::Joining { own }, true) => *own,
            _ => self.new_peer(),
        };
        let node = &mut self.nodes[nth];
        node.end_sync();
        let initial = InitialConfig::Joining { own };
        node.engine.replace(&Rows::new(), Lsn(0));
        let Some(process) = &mut node.process else { return };
        if process.runner.open_group(GROUP, Lsn(0), &initial).is_ok() {
            (node.peer, node.initial) = (Some(own), initial);
        }
    }
}
