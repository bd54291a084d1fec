//! A replica is removed while one of its group hears nothing of it, and its server starts again, with what
//! its engine knew before, where only that one reaches it. Were it a member again under its old name, without
//! the log that it had, the two would be a majority of a group that goes on elsewhere.

use std::time::Duration;

use cluster::{ServerId, ShardPlaces, ShardsWanted, TableChange, places_of};
use io::Nanos;
use log::GroupId;

use super::{Scheme, Three};
use crate::machine::End;
use crate::trace::say;
use crate::world::World;

/// How long the removal may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// After this whoever was removed has said its last word.
const FAREWELL: Duration = Duration::from_millis(200);
/// How long the two are left with each other: some elections.
const TOGETHER: Duration = Duration::from_secs(7);

/// The scheme.
pub(crate) struct Reborn {
    group: GroupId,
    table: String,
    // Who keeps the only replica.
    leader: (usize, ServerId),
    away: usize,
    gone: usize,
    scene: Scene,
    pub(super) until: Nanos,
}

enum Scene {
    /// The others are being removed.
    Shrinking,
    /// They are removed.
    Gone,
    /// One of them has started again and hears only the one who knows nothing of that.
    Together,
}

impl World {
    /// Begins to leave a shard of three replicas with the one that leads it.
    pub(crate) fn bear_again(&mut self) {
        let Some(three) = self.led_by_one_of_three(&self.workload.tables) else { return };
        let Three { group, leader, others: [mut away, mut gone] } = three;
        if self.random.one_in(2) {
            (away, gone) = (gone, away);
        }
        let Some(node) = self.machines[leader].node() else { return };
        let (own, catalog) = (node.identity().server, node.catalog());
        let of = |table: &&String| {
            let table = catalog.table("test", table);
            table.is_some_and(|table| table.shards().iter().any(|handle| handle.group() == group))
        };
        let Some(name) = self.workload.tables.iter().find(of).cloned() else { return };
        let Some(table) = catalog.table("test", &name) else { return };
        let (id, shards) = (table.config.id, &table.config.shards);
        if shards.iter().any(|shard| !shard.leaving.is_empty()) {
            return;
        }
        say!("node {leader} keeps group {group}; {away} does not hear of it, {gone} forgets it");
        let mut places = places_of(shards);
        for (shard, place) in shards.iter().zip(&mut places).filter(|(shard, _)| shard.group == group) {
            *place = ShardPlaces { primary: own, replicas: vec![(own, true)] };
            tracing::trace!("group {group} was {:?}", shard.replicas);
        }
        let change = TableChange { shards: Some(ShardsWanted::Named(places)), ..TableChange::default() };
        self.clear_up(&[leader, away, gone]);
        // What it will know when it starts again.
        self.machines[gone].flush_engine(&self.tasks);
        self.isolate(away, None);
        self.ask_node(leader, "shrink", move |node| {
            if let Err(error) = node.change_table(id, &change) {
                tracing::info!("the replicas stay: {error}");
            }
        });
        let until = self.now().after(PATIENCE);
        let (leader, scene) = ((leader, own), Scene::Shrinking);
        self.scheme = Some(Scheme::Reborn(Reborn { group, table: name, leader, away, gone, scene, until }));
    }

    pub(super) fn go_on_with_reborn(&mut self, mut reborn: Reborn) -> Option<Reborn> {
        let now = self.now();
        match reborn.scene {
            Scene::Shrinking if self.is_left_alone(&reborn) => {
                (reborn.scene, reborn.until) = (Scene::Gone, now.after(FAREWELL));
            }
            Scene::Gone if now >= reborn.until => {
                let how = if self.climate.loses_power { End::Power } else { End::Killed };
                self.isolate(reborn.gone, Some(reborn.away));
                self.net.mend(io::sim::Host(reborn.gone), io::sim::Host(reborn.away));
                self.net.mend(io::sim::Host(reborn.away), io::sim::Host(reborn.gone));
                self.bounce(reborn.gone, how);
                (reborn.scene, reborn.until) = (Scene::Together, now.after(TOGETHER));
            }
            Scene::Shrinking | Scene::Together if now >= reborn.until => return None,
            Scene::Shrinking | Scene::Gone | Scene::Together => {}
        }
        Some(reborn)
    }

    /// Whether the leader and the one who goes know that only the leader's replica is left.
    fn is_left_alone(&self, reborn: &Reborn) -> bool {
        let (leader, server) = reborn.leader;
        let knows = |nth: usize| {
            let catalog = self.machines[nth].node()?.catalog();
            let table = catalog.table("test", &reborn.table)?;
            let shard = table.config.shards.iter().find(|shard| shard.group == reborn.group)?;
            let is_only = shard.replicas.iter().all(|replica| replica.server == server);
            Some(is_only && shard.leaving.is_empty())
        };
        knows(leader) == Some(true) && knows(reborn.gone) == Some(true)
    }
}
