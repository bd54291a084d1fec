//! A replica is copied to a server that had none, and one of the two ends in the middle, again and again: the
//! next copy goes on with what is there, of another moment and perhaps from another leader.

use std::time::Duration;

use cluster::{GroupId, ServerId, ShardPlaces, ShardsWanted, TableChange, TableConfig, places_of};
use io::Nanos;
use io::sim::{Host, NetworkConditions};

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
    table: String,
    group: GroupId,
    // Who gets the copy.
    to: (usize, ServerId),
    // One that has a replica loses it first.
    is_placed: bool,
    // So often it is still to be interrupted.
    halts_left: u64,
    rows_before: u64,
    pub(super) until: Nanos,
}

/// A shard of a table, and who leads it.
struct LedShard {
    leader: usize,
    config: TableConfig,
    at: usize,
}

impl LedShard {
    fn has(&self, server: ServerId) -> bool {
        let shard = &self.config.shards[self.at];
        shard.replicas.iter().chain(&shard.leaving).any(|replica| replica.server == server)
    }
}

impl World {
    /// Begins to give a shard another replica; where every machine has one, one is taken away before.
    pub(crate) fn halt_a_copy(&mut self) {
        let tables = &self.workload.tables;
        let table = tables[self.random.below(tables.len() as u64) as usize].clone();
        let Some(led) = self.led_shard(&table, None) else { return };
        let servers: Vec<(usize, ServerId)> = (0..self.machines.len())
            .filter(|nth| *nth != led.leader && !self.net.is_stalled(Host(*nth)))
            .filter_map(|nth| Some((nth, self.machines[nth].node()?.identity().server)))
            .collect();
        let without = servers.iter().find(|(_, server)| !led.has(*server));
        let is_only = |server: ServerId| {
            let replicas = &led.config.shards[led.at].replicas;
            replicas.iter().all(|replica| replica.server == server || !replica.voting)
        };
        let other = servers.iter().rfind(|(_, server)| !is_only(*server));
        let Some(to) = without.or(other).copied() else { return };
        let group = led.config.shards[led.at].group;
        say!("group {group} is copied to node {}, which is halted", to.0);
        self.clear_up(&[led.leader, to.0]);
        self.net.set_conditions(NetworkConditions {
            delay_max: SLOW,
            unreachable_after: Duration::from_secs(5),
            ..NetworkConditions::default()
        });
        let is_placed = !led.has(to.1);
        let mut places = places_of(&led.config.shards);
        let place = &mut places[led.at];
        match is_placed {
            true => place.replicas.push((to.1, true)),
            false => place.replicas.retain(|(server, _)| *server != to.1),
        }
        if let (false, Some((first, _))) = (is_placed, place.replicas.first())
            && place.primary == to.1
        {
            place.primary = *first;
        }
        self.place(&led, places);
        let until = self.now().after(PATIENCE);
        let halts_left = 1 + self.random.below(3);
        let halt = Halt { table, group, to, is_placed, halts_left, rows_before: 0, until };
        self.scheme = Some(Scheme::Halt(halt));
    }

    /// A shard with some rows that somebody leads, `group` if that is given.
    fn led_shard(&self, table: &str, group: Option<GroupId>) -> Option<LedShard> {
        (0..self.machines.len()).filter(|nth| !self.net.is_stalled(Host(*nth))).find_map(|leader| {
            let catalog = self.machines[leader].node()?.catalog();
            let handle = catalog.table("test", table)?;
            let at = handle.shards().iter().position(|shard| {
                let is_it = group.is_none_or(|group| group == shard.group());
                is_it && shard.near().is_some_and(|near| near.is_leader() && near.count() > 1)
            })?;
            Some(LedShard { leader, config: handle.config.clone(), at })
        })
    }

    fn place(&self, led: &LedShard, places: Vec<ShardPlaces>) {
        let change = TableChange { shards: Some(ShardsWanted::Named(places)), ..TableChange::default() };
        let id = led.config.id;
        self.ask_node(led.leader, "place", move |node| {
            if let Err(error) = node.change_table(id, &change) {
                tracing::info!("the replicas stay: {error}");
            }
        });
    }

    /// Places the replica there again, when the one that was there has gone.
    fn place_again(&self, halt: &mut Halt) {
        let Some(led) = self.led_shard(&halt.table, Some(halt.group)) else { return };
        if !led.has(halt.to.1) {
            let mut places = places_of(&led.config.shards);
            places[led.at].replicas.push((halt.to.1, true));
            self.place(&led, places);
            halt.is_placed = true;
        }
    }

    pub(super) fn go_on_with_halt(&mut self, mut halt: Halt) -> Option<Halt> {
        if !halt.is_placed {
            self.place_again(&mut halt);
        }
        let copies = self.machines[halt.to.0].node().map(|node| node.copies_under_way()).unwrap_or_default();
        let of_group = copies.into_iter().find(|(group, _)| *group == halt.group);
        if let Some((_, getting)) = of_group
            && getting.rows != halt.rows_before
        {
            halt.rows_before = getting.rows;
            if getting.rows > 0 && getting.rows < getting.rows_total && self.random.one_in(2) {
                self.halt_now(&mut halt, getting.source);
            }
        }
        (self.now() < halt.until && halt.halts_left > 0).then_some(halt)
    }

    fn halt_now(&mut self, halt: &mut Halt, source: Option<ServerId>) {
        let is_source = |nth: &usize| {
            source.is_some() && self.machines[*nth].node().map(|node| node.identity().server) == source
        };
        let source = (0..self.machines.len()).find(is_source);
        let ends = match self.random.one_in(3) {
            true => source.unwrap_or(halt.to.0),
            false => halt.to.0,
        };
        if ends == halt.to.0 && self.random.one_in(2) {
            // What came so far is written down, while more comes; another time it may end after that.
            return self.machines[ends].flush_engine(&self.tasks);
        }
        let loses_power = self.climate.loses_power && self.random.one_in(2);
        say!("a copy of group {} ends after {} rows", halt.group, halt.rows_before);
        self.copies_halted += 1;
        halt.halts_left -= 1;
        halt.rows_before = 0;
        self.bounce(ends, if loses_power { End::Power } else { End::Killed });
    }
}
