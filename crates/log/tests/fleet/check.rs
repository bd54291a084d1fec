//! The guarantees that must hold after every event and at the end.

use std::collections::BTreeSet;

use super::node::{Event, Rows, hold};
use super::world::{Copy, GROUP, World};
use crate::lsn::{Durability, Lsn};
use crate::member::{InitialConfig, Role};
use crate::proposal::Request;

/// After healing, there must be a leader that accepts entries within this many rounds of 50 ms.
const HEAL_ROUNDS: u64 = 2000;

impl World {
    /// Handles the events and applied entries of all nodes since the last check.
    pub(super) fn check(&mut self) -> Result<(), String> {
        for nth in 0..self.nodes.len() {
            let events = std::mem::take(&mut *hold(&self.nodes[nth].outbox.events));
            for event in events {
                self.handle_event(nth, event)?;
            }
            let applied = std::mem::take(&mut *hold(&self.nodes[nth].engine.unchecked));
            for (lsn, payload) in applied {
                self.note_applied(nth, lsn, &payload)?;
            }
        }
        for (nth, node) in self.nodes.iter().enumerate() {
            let elected = node.process.as_ref().and_then(|process| process.runner.elected(GROUP));
            if let (Some(term), Some(peer)) = (elected, node.peer) {
                if self.status(nth).is_some_and(|status| status.needs_rows) {
                    self.stand_in_terms.insert(term);
                    if self.leads(nth) {
                        return Err(format!("node {nth} leads in term {term} without rows"));
                    }
                }
                let first = *self.leaders.entry(term).or_insert(peer);
                if first != peer {
                    return Err(format!("{first} and {peer} were elected in term {term}"));
                }
            }
            if let Some(cause) = node.process.as_ref().and_then(|process| process.runner.failure()) {
                return Err(format!("the log of node {nth} has stopped: {cause}"));
            }
        }
        self.check_reads()
    }

    fn handle_event(&mut self, nth: usize, event: Event) -> Result<(), String> {
        let node = &mut self.nodes[nth];
        match event {
            Event::RoleChanged(role) => {
                node.role = Some(role);
                if let (Role::Leader { term }, Some(peer)) = (role, node.peer) {
                    self.trace = self.trace.rotate_left(7) ^ term.0;
                    let first = *self.leaders.entry(term).or_insert(peer);
                    if first != peer {
                        return Err(format!("{first} and {peer} lead in term {term}"));
                    }
                }
            }
            Event::RowsNeeded => {
                node.needs_rows = true;
                self.invalidated += u64::from(matches!(node.initial, InitialConfig::Bootstrap { .. }));
            }
            Event::Removed => return self.forget_replica(nth),
            Event::SnapshotNeeded(to) => {
                if self.status(nth).is_some_and(|status| status.needs_rows) {
                    return Err(format!("node {nth} offers {to} a copy of invalid rows"));
                }
                let node = &self.nodes[nth];
                let rows = hold(&node.engine.memory).clone();
                let at = rows.last_key_value().map_or(Lsn(0), |(lsn, _)| *lsn);
                let copy = Copy { to, rows, base: Default::default(), requested: self.now() };
                let slot = copy.base.clone();
                if let Some(process) = &mut self.nodes[nth].process {
                    let done = Box::new(move |result| *hold(&slot) = Some(result));
                    process.runner.request(Request::LogBase(GROUP, at, done));
                    self.copies.push(copy);
                }
            }
        }
        Ok(())
    }

    /// Two replicas may differ at a position only if a power loss took an entry that the first had applied.
    fn note_applied(&mut self, nth: usize, lsn: Lsn, payload: &bytes::Bytes) -> Result<(), String> {
        self.trace = self.trace.rotate_left(3) ^ lsn.0 ^ nth as u64;
        let before = self.applied.insert(lsn, payload.clone());
        if before.as_ref().is_some_and(|before| before != payload) && self.power_losses == 0 {
            return Err(format!("node {nth} applies {payload:?} at {lsn}, where {before:?} was"));
        }
        let refused = self.proposed.iter().find(|proposed| {
            proposed.payload == payload
                && matches!(&*hold(&proposed.answer), Some(Err(cause)) if cause.is_definite())
        });
        match refused {
            Some(_) => Err(format!("{payload:?} was refused and is applied by node {nth} at {lsn}")),
            None => Ok(()),
        }
    }

    fn check_reads(&mut self) -> Result<(), String> {
        for read in std::mem::take(&mut self.reads) {
            let answer = hold(&read.answer).clone();
            match answer {
                None => self.reads.push(read),
                Some(Ok(lsn)) if lsn < read.floor && self.power_losses == 0 => {
                    let (node, floor) = (read.node, read.floor);
                    return Err(format!("node {node} reads at {lsn}, {floor} was acknowledged before"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Starts all nodes and heals the network; then all must agree.
    pub(super) fn heal(&mut self) -> Result<(), String> {
        self.healed_after = self.acknowledged();
        self.cut.clear();
        for nth in 0..self.nodes.len() {
            if self.nodes[nth].process.is_none() {
                self.start(nth)?;
            }
        }
        let may_be_invalid = self.disks_lose_data && self.all_rows_are_invalid();
        for round in 0..HEAL_ROUNDS {
            self.round(round)?;
            if round % 20 == 19 && self.agree() {
                return self.compare();
            }
        }
        match may_be_invalid && self.all_rows_are_invalid() {
            // Before healing, the disk of every voter had lost log entries that its engine had applied.
            true => Ok(()),
            false => Err(format!("no agreement after healing: {}", self.describe())),
        }
    }

    /// One round of all nodes, without losses; leaders sometimes propose.
    fn round(&mut self, round: u64) -> Result<(), String> {
        for nth in 0..self.nodes.len() {
            if round.is_multiple_of(40) && self.leads(nth) {
                self.propose_on(nth, Durability::Hard);
            }
        }
        self.exchange()
    }

    /// Every node takes a step and fsyncs, and all messages arrive.
    pub(super) fn exchange(&mut self) -> Result<(), String> {
        for nth in 0..self.nodes.len() {
            self.step_log(nth);
            self.begin_sync(nth);
            self.nodes[nth].end_sync();
        }
        self.deliver_all();
        self.pass_exactly(50);
        self.check()?;
        self.carry_copies()
    }

    /// Whether there is a leader, nothing is on its way, and all members have the same position.
    fn agree(&self) -> bool {
        let Some(leader) = (0..self.nodes.len()).find(|nth| self.leads(*nth)) else { return false };
        let Some(status) = self.status(leader) else { return false };
        let answered = self
            .proposed
            .iter()
            .any(|proposed| matches!(&*hold(&proposed.answer), Some(Ok(lsn)) if *lsn > self.healed_after));
        let members = status.members.voters.iter().chain(&status.members.learners);
        answered
            && members.clone().all(|peer| {
                let status_of = self.node_of(*peer).and_then(|nth| self.status(nth));
                status_of.is_some_and(|its| {
                    !its.needs_rows && its.applied == status.applied && its.last == status.last
                })
            })
    }

    fn all_rows_are_invalid(&self) -> bool {
        let is_invalid = |nth| self.status(nth).is_none_or(|status| status.needs_rows);
        (0..self.nodes.len()).all(is_invalid)
    }

    fn describe(&self) -> String {
        (0..self.nodes.len()).map(|nth| format!("\n  {nth}: {:?}", self.status(nth))).collect()
    }

    /// Checks that all members have the same rows, and that those include every acknowledged entry.
    fn compare(&self) -> Result<(), String> {
        let Some(leader) = (0..self.nodes.len()).find(|nth| self.leads(*nth)) else { return Ok(()) };
        let rows = hold(&self.nodes[leader].engine.memory).clone();
        let members = self.status(leader).map(|status| status.members).unwrap_or_default();
        for nth in 0..self.nodes.len() {
            let is_member = self.nodes[nth].peer.is_some_and(|peer| members.contains(peer));
            let its: Rows = hold(&self.nodes[nth].engine.memory).clone();
            if is_member && its != rows {
                let odd = its.iter().find(|(lsn, payload)| rows.get(lsn) != Some(payload));
                return Err(format!("node {nth} has other rows than the leader {leader}: {odd:?}"));
            }
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = rows.values().find(|payload| !seen.insert((*payload).clone())) {
            return Err(format!("{twice:?} is applied twice"));
        }
        for proposed in &self.proposed {
            let lost = |lsn: &Lsn| rows.get(lsn) != Some(&proposed.payload);
            let may_go = proposed.durability == Durability::Soft && self.power_losses > 0;
            match &*hold(&proposed.answer) {
                Some(Ok(lsn)) if lost(lsn) && !may_go => {
                    let (durability, payload) = (proposed.durability, &proposed.payload);
                    return Err(format!("acknowledged {durability:?} {payload:?} at {lsn} is lost"));
                }
                Some(Err(cause)) if cause.is_definite() && seen.contains(&proposed.payload) => {
                    return Err(format!("refused {:?} is applied", proposed.payload));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Runs rounds until one of `candidates` leads.
    pub(super) fn wait_for_leader(&mut self, candidates: &[usize]) -> Result<usize, String> {
        for _ in 0..400 {
            self.exchange()?;
            if let Some(leader) = candidates.iter().find(|nth| self.leads(**nth)) {
                return Ok(*leader);
            }
        }
        Err(format!("none of {candidates:?} is elected"))
    }

    /// A soft entry is acknowledged by `leader` without an fsync. Its followers learn that.
    pub(super) fn soft_entry_without_fsync(&mut self, leader: usize) -> Result<(), String> {
        self.propose_on(leader, Durability::Soft);
        self.step_log(leader);
        for _ in 0..4 {
            self.deliver_all();
            self.pass_exactly(100);
        }
        self.check()?;
        match self.proposed.last().map(|proposed| hold(&proposed.answer).clone()) {
            Some(Some(Ok(_))) => Ok(()),
            other => Err(format!("the soft entry is answered with {other:?}")),
        }
    }

    /// A hard entry is acknowledged by `leader`.
    pub(super) fn hard_entry(&mut self, leader: usize) -> Result<(), String> {
        self.propose_on(leader, Durability::Hard);
        for _ in 0..40 {
            self.exchange()?;
            if self.proposed.last().is_some_and(|proposed| matches!(*hold(&proposed.answer), Some(Ok(_)))) {
                return Ok(());
            }
        }
        Err("the entry is not acknowledged".to_owned())
    }
}
