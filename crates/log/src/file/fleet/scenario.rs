//! Histories that chance hardly finds, step by step.

use super::node::hold;
use super::world::World;
use crate::lsn::Durability;

impl World {
    /// A world of the three founders only.
    pub(super) fn of_three(seed: u64) -> Result<World, String> {
        let mut world = World::new(seed);
        world.nodes.truncate(3);
        for nth in 0..3 {
            world.start(nth)?;
        }
        Ok(world)
    }

    /// Lets everything reach everybody who can be reached, until one of `candidates` leads.
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

    /// A soft entry is acknowledged by `leader`; nothing is fsynced. Its followers hear of it.
    pub(super) fn soft_entry_without_fsync(&mut self, leader: usize) -> Result<(), String> {
        self.propose_on(leader, Durability::Soft);
        self.turn(leader);
        for _ in 0..4 {
            self.deliver_all();
            self.pass_exactly(100);
        }
        self.look()?;
        match self.proposed.last().map(|proposed| hold(&proposed.answer).clone()) {
            Some(Some(Ok(_))) => Ok(()),
            other => Err(format!("the soft entry is answered with {other:?}")),
        }
    }

    pub(super) fn lose_power(&mut self, nth: usize) -> Result<(), String> {
        self.power_losses += 1;
        let node = &mut self.nodes[nth];
        (node.life, node.role) = (None, None);
        node.files.crash();
        self.start(nth)
    }
}
