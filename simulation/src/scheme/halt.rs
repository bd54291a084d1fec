//! A replica is copied to a server that had none, and one of the two ends in the middle, again and again: the
//! next copy goes on with what is there, of another moment and perhaps from another leader.

use std::time::Duration;

use cluster::{GroupId, ShardsWanted, TableChange, places_of};
use engine::Engine;
use io::Nanos;
use io::sim::{Host, Weather};

use super::Scheme;
use crate::machine::End;
use crate::trace::say;
use crate::world::World;

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(12);
/// Slow enough that a copy of some rows takes a while.
const SLOW: Duration = Duration::from_millis(40);

/// The scheme.
pub(crate) struct Halt {
    group: GroupId,
    to: usize,
    // So many pieces come in between.
    halts_left: u64,
    rows_before: u64,
    pub(super) until: Nanos,
}

impl World {
    /// Begins to give a shard another replica.
    pub(crate) fn halt_a_copy(&mut self) {
        let tables = &self.workload.tables;
        let table = tables[self.random.below(tables.len() as u64) as usize].clone();
        let runs = |nth: &usize| self.machines[*nth].node().is_some() && !self.net.is_stalled(Host(*nth));
        let leads = |nth: &usize| {
            let catalog = self.machines[*nth].node()?.catalog();
            let handle = catalog.table("test", &table)?;
            let near = handle
                .shards()
                .iter()
                .position(|shard| shard.near().is_some_and(|near| near.is_leader() && near.count() > 1));
            Some((handle.config.clone(), near?))
        };
        let running: Vec<usize> = (0..self.machines.len()).filter(runs).collect();
        let Some((leader, (config, at))) = running.iter().find_map(|nth| Some((*nth, leads(nth)?))) else {
            return;
        };
        let shard = &config.shards[at];
        let has = |nth: &usize| {
            let server = self.machines[*nth].node().map(|node| node.identity().server);
            shard.replicas.iter().chain(&shard.leaving).any(|replica| Some(replica.server) == server)
        };
        let Some(to) = running.iter().copied().find(|nth| !has(nth)) else {
            return self.make_room(leader, &config, at);
        };
        let Some(server) = self.machines[to].node().map(|node| node.identity().server) else { return };
        let group = shard.group;
        say!("group {group} is copied to node {to}, which is halted");
        let mut places = places_of(&config.shards);
        places[at].replicas.push((server, true));
        self.clear_up(&[leader, to]);
        self.net.set_weather(Weather {
            delay_most: SLOW,
            unreachable_after: Duration::from_secs(5),
            ..Weather::default()
        });
        self.place(leader, &config, places);
        let until = self.now().after(PATIENCE);
        let halts_left = 1 + self.random.below(3);
        self.scheme = Some(Scheme::Halt(Halt { group, to, halts_left, rows_before: 0, until }));
    }

    /// Takes the last replica of a shard that is on every machine away, so that it can be copied the next time.
    fn make_room(&mut self, leader: usize, config: &cluster::TableConfig, at: usize) {
        let own = self.machines[leader].node().map(|node| node.identity().server);
        let mut places = places_of(&config.shards);
        let replicas = &mut places[at].replicas;
        if let Some(place) = replicas.iter().rposition(|(server, _)| Some(*server) != own) {
            let (gone, _) = replicas.remove(place);
            if places[at].primary == gone {
                places[at].primary = places[at].replicas[0].0;
            }
            self.place(leader, config, places);
        }
    }

    fn place(&self, nth: usize, config: &cluster::TableConfig, places: Vec<cluster::ShardPlaces>) {
        let (id, change) =
            (config.id, TableChange { shards: Some(ShardsWanted::Named(places)), ..TableChange::default() });
        self.ask_node(nth, "place", move |node| {
            if let Err(error) = node.change_table(id, &change) {
                tracing::info!("the replicas stay: {error}");
            }
        });
    }

    pub(super) fn go_on_with_halt(&mut self, mut halt: Halt) -> Option<Halt> {
        let copies = self.machines[halt.to].node().map(|node| node.copies_under_way()).unwrap_or_default();
        let of_group = copies.into_iter().find(|(group, _)| *group == halt.group);
        if let Some((_, getting)) = of_group
            && getting.rows != halt.rows_before
        {
            halt.rows_before = getting.rows;
            if getting.rows > 0 && getting.rows < getting.rows_total && self.random.one_in(3) {
                self.halt_now(&mut halt, getting.source);
            }
        }
        (self.now() < halt.until && halt.halts_left > 0).then_some(halt)
    }

    fn halt_now(&mut self, halt: &mut Halt, source: Option<cluster::ServerId>) {
        let is_source = |nth: &usize| {
            source.is_some() && self.machines[*nth].node().map(|node| node.identity().server) == source
        };
        let source = (0..self.machines.len()).find(is_source);
        let ends = match self.random.one_in(3) {
            true => source.unwrap_or(halt.to),
            false => halt.to,
        };
        if ends == halt.to && self.random.one_in(2) {
            // What came so far is written down.
            drop(self.machines[ends].plan.engine.flush());
        }
        let loses_power = self.climate.loses_power && self.random.one_in(2);
        say!("a copy of group {} ends after {} rows", halt.group, halt.rows_before);
        self.copies_halted += 1;
        halt.halts_left -= 1;
        halt.rows_before = 0;
        self.bounce(ends, if loses_power { End::Power } else { End::Killed });
    }
}
