//! Steps of scenarios that random events hardly produce.

use std::sync::Arc;

use io::sim::SimFiles;

use super::node::{Engine, Rows, hold};
use super::world::World;
use crate::lsn::{Durability, Lsn};

/// An earlier copy of a node's disk.
pub(super) struct Backup {
    files: SimFiles,
    rows: Rows,
    copied: Lsn,
}

impl World {
    /// A fleet of the three first members only.
    pub(super) fn of_three(seed: u64) -> Result<World, String> {
        let mut world = World::new(seed);
        world.nodes.truncate(3);
        for nth in 0..3 {
            world.start(nth)?;
        }
        Ok(world)
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

    pub(super) fn cut_off(&mut self, nth: usize) {
        let others = 0..self.nodes.len();
        self.cut = others.flat_map(|other| [(nth, other), (other, nth)]).collect();
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

    /// The rows of a node become durable although its log is not: the disk reports a success that did not happen.
    pub(super) fn flush_ahead(&mut self, nth: usize) {
        self.disks_lose_data = true;
        let rows = hold(&self.nodes[nth].engine.memory).clone();
        *hold(&self.nodes[nth].engine.durable) = rows;
    }

    /// Flushes the engine, if the log has grown enough for that, and deletes entries from the log.
    pub(super) fn shorten_log(&mut self, nth: usize) {
        self.flush(nth);
        self.flush(nth);
    }

    pub(super) fn lose_power(&mut self, nth: usize) -> Result<(), String> {
        self.stop_without_power(nth);
        self.start(nth)
    }

    pub(super) fn stop_without_power(&mut self, nth: usize) {
        self.power_losses += 1;
        let node = &mut self.nodes[nth];
        (node.process, node.role) = (None, None);
        node.files.crash();
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
