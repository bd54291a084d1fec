//! What goes wrong in a certain order, at the moments at which it hurts most: chance alone hardly finds it.
//! While a scheme is under way nothing else goes wrong.

mod cleft;
mod halt;
mod lapse;
mod reborn;
mod removal;
mod votes;

use std::time::Duration;

use cluster::ServerId;
use io::Nanos;
use io::sim::{Host, NetworkConditions};
use log::GroupId;

use crate::machine::{End, PACES};
use crate::trace::say;
use crate::world::World;

use cleft::Cleft;
use halt::Halt;
use lapse::Lapse;
use reborn::Reborn;
use removal::Removal;
use votes::Votes;

/// After this an answer has left, and what was promised in it is on the disk.
const ANSWERED: Duration = Duration::from_millis(30);

/// One that is under way.
pub(crate) enum Scheme {
    /// Somebody votes, forgets, and is asked again.
    Votes(Votes),
    /// A replica is removed, and its server starts again with a catalog of before.
    Reborn(Reborn),
    /// A soft write that is applied is lost by those who go on.
    Lapse(Lapse),
    /// A server is removed for good.
    Removal(Removal),
    /// A table is divided by somebody who forgets it.
    Cleft(Cleft),
    /// A copy of rows is interrupted.
    Halt(Halt),
}

impl Scheme {
    fn until(&self) -> Nanos {
        match self {
            Scheme::Votes(votes) => votes.until,
            Scheme::Reborn(reborn) => reborn.until,
            Scheme::Lapse(lapse) => lapse.until,
            Scheme::Removal(removal) => removal.until,
            Scheme::Cleft(cleft) => cleft.until,
            Scheme::Halt(halt) => halt.until,
        }
    }
}

/// A group of three whose machines run: who leads it, and the others.
pub(super) struct Three {
    pub group: GroupId,
    pub leader: usize,
    pub others: [usize; 2],
}

impl World {
    /// Whether a scheme is under way: nothing else goes wrong meanwhile.
    pub(crate) fn schemes(&self) -> bool {
        self.scheme.is_some()
    }

    /// When the scheme under way goes on by itself.
    pub(crate) fn scheme_at(&self) -> Option<Nanos> {
        self.scheme.as_ref().map(Scheme::until)
    }

    /// Begins one of the schemes that the climate has, if what it needs is there.
    pub(crate) fn scheme_something(&mut self) {
        let climate = self.climate;
        match self.random.below(5) {
            0 if climate.bears_again => self.bear_again(),
            1 if climate.lapses => self.lapse(),
            2 if climate.removes => self.remove_somebody(),
            3 if climate.cleaves => self.cleave(),
            4 if climate.halts => self.halt_a_copy(),
            _ => {}
        }
    }

    /// Looks whether the scheme that is under way can go on.
    pub(crate) fn go_on_with_scheme(&mut self) {
        let Some(scheme) = self.scheme.take() else { return };
        self.scheme = match scheme {
            Scheme::Votes(votes) => self.go_on_with_votes(votes).map(Scheme::Votes),
            Scheme::Reborn(reborn) => self.go_on_with_reborn(reborn).map(Scheme::Reborn),
            Scheme::Lapse(lapse) => self.go_on_with_lapse(lapse).map(Scheme::Lapse),
            Scheme::Removal(removal) => self.go_on_with_removal(removal).map(Scheme::Removal),
            Scheme::Cleft(cleft) => self.go_on_with_cleft(cleft).map(Scheme::Cleft),
            Scheme::Halt(halt) => self.go_on_with_halt(halt).map(Scheme::Halt),
        };
        if self.scheme.is_none() {
            self.net.heal_cuts();
        }
    }

    /// Heals the network, and the disks of some machines.
    fn clear_up(&mut self, machines: &[usize]) {
        self.net.heal_cuts();
        self.net.set_conditions(NetworkConditions {
            unreachable_after: Duration::from_secs(5),
            ..NetworkConditions::default()
        });
        for nth in machines {
            self.machines[*nth].plan.disk.set_pace(PACES[0]);
        }
    }

    /// Nothing passes between one machine and the others but `except`.
    fn isolate(&mut self, nth: usize, except: Option<usize>) {
        for other in (0..self.machines.len()).filter(|other| *other != nth && Some(*other) != except) {
            self.net.cut(Host(nth), Host(other));
            self.net.cut(Host(other), Host(nth));
        }
    }

    /// A group of three of one of `tables` whose machines run.
    fn led_by_one_of_three(&self, tables: &[String]) -> Option<Three> {
        let place = |id: ServerId| {
            let is_it = |nth: &usize| {
                self.machines[*nth].node().is_some_and(|node| node.identity().server == id)
                    && !self.net.is_stalled(Host(*nth))
            };
            (0..self.machines.len()).find(is_it)
        };
        for (nth, machine) in self.machines.iter().enumerate() {
            let Some(node) = machine.node() else { continue };
            let catalog = node.catalog();
            let tables = tables.iter().filter_map(|table| catalog.table("test", table));
            for handle in tables.flat_map(|table| table.shards()) {
                let leads = handle.near().is_some_and(|near| near.is_leader());
                let places: Option<Vec<usize>> =
                    handle.replicas().iter().map(|replica| place(replica.server)).collect();
                if let (true, Some(places)) = (leads, places)
                    && let [one, other] =
                        places.iter().copied().filter(|at| *at != nth).collect::<Vec<_>>()[..]
                    && places.len() == 3
                {
                    return Some(Three { group: handle.group(), leader: nth, others: [one, other] });
                }
            }
        }
        None
    }

    /// Ends a process and starts the next one at once.
    pub(crate) fn bounce(&mut self, nth: usize, how: End) {
        say!("node {nth} is started again at once: {how:?}");
        self.power_losses += u64::from(how == End::Power);
        self.machines[nth].end(how, &self.tasks, &mut self.net);
        self.machines[nth].start(&self.tasks, &mut self.net);
    }
}
