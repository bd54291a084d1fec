//! Chooses the servers of a table's replicas: a pure function of the servers, their load, the current places, and the
//! request.
//!
//! Replicas are spread evenly over the servers of their tag. Where that leaves a choice, a replica stays on its server,
//! else it goes to the server with the lowest load. Primaries are placed first, each on a different server if there are
//! enough.

use std::collections::{BTreeMap, BTreeSet};

use datum::Text;

use super::snapshot::Catalog;
use crate::config::boundaries::SHARDS_MAX;
use crate::config::{ServerConfig, ServerId, ShardConfig};
use crate::error::PlacementError;

/// The weight of a primary in the load of a server; [`SECONDARY_WEIGHT`] for a secondary.
const PRIMARY_WEIGHT: u64 = 10;
const SECONDARY_WEIGHT: u64 = 8;

/// The load added to a server with a stalled disk, so that it is chosen last.
pub(crate) const STALLED_WEIGHT: u64 = u64::MAX / 2;

/// The shards and replicas that `table_create` or `reconfigure` requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementGoal {
    /// The number of shards, at least 1.
    pub shards: usize,
    /// The number of replicas of each shard on servers with each tag.
    pub replicas: BTreeMap<Text, usize>,
    /// The tag of the servers that may have primaries.
    pub primary_tag: Text,
    /// The tags whose replicas do not vote.
    pub nonvoting_tags: Vec<Text>,
}

/// The servers of one shard's replicas: each server once, including the primary's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardPlaces {
    /// The server of the preferred leader.
    pub primary: ServerId,
    /// The server of each replica, the primary's first, and whether the replica votes.
    pub replicas: Vec<(ServerId, bool)>,
}

/// The load of servers by the replicas of other tables than the one that is placed.
pub type Load = BTreeMap<ServerId, u64>;

/// The load of every server by the tables other than `except`, without temporary replicas.
#[must_use]
pub fn load(catalog: &Catalog, except: Option<storage::TableId>) -> Load {
    let others = catalog.tables().into_iter().filter(|table| Some(table.config.id) != except);
    load_of(others.flat_map(|table| &table.config.shards))
}

fn load_of<'a>(shards: impl Iterator<Item = &'a ShardConfig>) -> Load {
    let mut load = Load::new();
    for shard in shards {
        for (server, _) in shard.permanent_replicas() {
            let weight = if server == shard.primary { PRIMARY_WEIGHT } else { SECONDARY_WEIGHT };
            *load.entry(server).or_default() += weight;
        }
    }
    load
}

/// Places a table's shards on `servers`. `current` gives the places that hold the rows of each new shard now; it is
/// empty for a new table.
///
/// Fails with the first error in the request.
pub fn place(
    servers: &[ServerConfig],
    load: &Load,
    goal: &PlacementGoal,
    current: &[ShardPlaces],
) -> Result<Vec<ShardPlaces>, PlacementError> {
    check(servers, goal)?;
    let mut board = Board {
        load,
        held: BTreeMap::new(),
        rows: vec![BTreeMap::new(); goal.shards],
        primaries: vec![None; goal.shards],
    };
    board.choose_primaries(&tagged(servers, &goal.primary_tag), current);
    for (tag, replicas) in &goal.replicas {
        let is_primary = *tag == goal.primary_tag;
        // The primary is one of its tag's replicas.
        let secondaries = replicas - usize::from(is_primary && *replicas > 0);
        board.choose_secondaries(
            &tagged(servers, tag),
            secondaries,
            !goal.nonvoting_tags.contains(tag),
            current,
        );
    }
    Ok(board.places())
}

/// The configured places of shards, without temporary replicas.
#[must_use]
pub fn places_of(shards: &[ShardConfig]) -> Vec<ShardPlaces> {
    let one = |shard: &ShardConfig| ShardPlaces {
        primary: shard.primary,
        replicas: shard.permanent_replicas().collect(),
    };
    shards.iter().map(one).collect()
}

fn check(servers: &[ServerConfig], goal: &PlacementGoal) -> Result<(), PlacementError> {
    if goal.replicas.values().sum::<usize>() == 0 {
        return Err(PlacementError::NoReplicas);
    }
    if goal.replicas.get(&goal.primary_tag).copied().unwrap_or(0) == 0 {
        return Err(PlacementError::NoPrimaries(goal.primary_tag.clone()));
    }
    if let Some(tag) = goal.nonvoting_tags.iter().find(|tag| !goal.replicas.contains_key(*tag)) {
        return Err(PlacementError::NoNonvoting(tag.clone()));
    }
    if goal.shards > SHARDS_MAX {
        return Err(PlacementError::TooManyShards(SHARDS_MAX));
    }
    let used = || goal.replicas.iter().filter(|(_, replicas)| **replicas > 0);
    let mut claimed: BTreeMap<ServerId, &Text> = BTreeMap::new();
    for (tag, _) in used() {
        for server in servers.iter().filter(|server| server.tags.contains(tag)) {
            if let Some(other) = claimed.insert(server.id, tag) {
                let (first, second) = (tag.clone(), other.clone());
                return Err(PlacementError::Overlap { first, second, server: server.name.clone() });
            }
        }
    }
    for (tag, replicas) in used() {
        let (wanted, servers, tag) = (*replicas, tagged(servers, tag).len(), tag.clone());
        if servers == 0 {
            return Err(PlacementError::NoServers(tag));
        }
        if wanted > servers {
            return Err(PlacementError::TooFewServers { wanted, tag, servers });
        }
    }
    Ok(())
}

fn tagged(servers: &[ServerConfig], tag: &Text) -> Vec<ServerId> {
    servers.iter().filter(|server| server.tags.contains(tag)).map(|server| server.id).collect()
}

/// A placement in progress.
struct Board<'a> {
    load: &'a Load,
    /// The number of replicas of this table on each server.
    held: BTreeMap<ServerId, usize>,
    /// The servers of each shard, and whether the replica there votes.
    rows: Vec<BTreeMap<ServerId, bool>>,
    primaries: Vec<Option<ServerId>>,
}

/// The number of replicas that each server may take, so that the numbers differ by one at most.
struct Quota {
    floor: usize,
    /// How many servers may take one more than `floor`.
    extra: usize,
}

impl Quota {
    fn of(replicas: usize, servers: usize) -> Quota {
        Quota { floor: replicas / servers, extra: replicas % servers }
    }

    fn take(&mut self, taken: usize) -> bool {
        if taken < self.floor {
            return true;
        }
        let may = taken == self.floor && self.extra > 0;
        self.extra -= usize::from(may);
        may
    }
}

impl Board<'_> {
    fn choose_primaries(&mut self, servers: &[ServerId], current: &[ShardPlaces]) {
        let mut quota = Quota::of(self.rows.len(), servers.len());
        let mut taken: BTreeMap<ServerId, usize> = BTreeMap::new();
        // Current primaries stay first, then current replicas become primaries.
        for as_primary in [true, false] {
            for shard in 0..self.rows.len() {
                let Some(places) = current.get(shard) else { continue };
                let mut known = places.replicas.iter().map(|(server, _)| *server);
                let stays = known.find(|server| {
                    (!as_primary || *server == places.primary)
                        && servers.contains(server)
                        && self.primaries[shard].is_none()
                        && quota.take(taken.get(server).copied().unwrap_or(0))
                });
                if let Some(server) = stays {
                    *taken.entry(server).or_default() += 1;
                    self.put_primary(shard, server);
                }
            }
        }
        for shard in 0..self.rows.len() {
            if self.primaries[shard].is_none() {
                let emptiest = servers.iter().copied().min_by_key(|server| {
                    let count = taken.get(server).copied().unwrap_or(0);
                    (count, self.load.get(server).copied().unwrap_or(0), *server)
                });
                if let Some(server) = emptiest {
                    *taken.entry(server).or_default() += 1;
                    self.put_primary(shard, server);
                }
            }
        }
    }

    fn put_primary(&mut self, shard: usize, server: ServerId) {
        self.primaries[shard] = Some(server);
        self.put(shard, server, true);
    }

    fn put(&mut self, shard: usize, server: ServerId, voting: bool) {
        self.rows[shard].insert(server, voting);
        *self.held.entry(server).or_default() += 1;
    }

    fn held(&self, server: ServerId) -> usize {
        self.held.get(&server).copied().unwrap_or(0)
    }

    fn choose_secondaries(
        &mut self,
        servers: &[ServerId],
        each: usize,
        voting: bool,
        current: &[ShardPlaces],
    ) {
        if each == 0 || servers.is_empty() {
            return;
        }
        let before: usize = servers.iter().map(|server| self.held(*server)).sum();
        let most = (before + each * self.rows.len()).div_ceil(servers.len());
        let mut missing = vec![each; self.rows.len()];
        for (shard, missing) in missing.iter_mut().enumerate() {
            let Some(places) = current.get(shard) else { continue };
            for (server, _) in &places.replicas {
                let fits = servers.contains(server) && !self.rows[shard].contains_key(server);
                if *missing > 0 && fits && self.held(*server) < most {
                    self.put(shard, *server, voting);
                    *missing -= 1;
                }
            }
        }
        for (shard, missing) in missing.iter().enumerate() {
            for _ in 0..*missing {
                let free = servers.iter().copied().filter(|server| !self.rows[shard].contains_key(server));
                // Adjacent shards start at adjacent servers, so that the last shards still have a choice of servers.
                let distance = |server: ServerId| {
                    let at = servers.iter().position(|known| *known == server).unwrap_or(0);
                    (at + servers.len() - shard % servers.len()) % servers.len()
                };
                let key = |server: &ServerId| {
                    (self.held(*server), self.load.get(server).copied().unwrap_or(0), distance(*server))
                };
                if let Some(server) = free.min_by_key(key) {
                    self.put(shard, server, voting);
                }
            }
        }
        self.level(&servers.iter().copied().collect());
    }

    /// Moves secondaries from the server with the most replicas to the one with the fewest, while these differ by two
    /// or more.
    fn level(&mut self, servers: &BTreeSet<ServerId>) {
        for _ in 0..self.rows.len() * servers.len() {
            let by_held = |server: &&ServerId| self.held(**server);
            let (Some(full), Some(empty)) =
                (servers.iter().max_by_key(by_held).copied(), servers.iter().min_by_key(by_held).copied())
            else {
                return;
            };
            if self.held(full) < self.held(empty) + 2 {
                return;
            }
            let movable = (0..self.rows.len()).find(|shard| {
                let row = &self.rows[*shard];
                self.primaries[*shard] != Some(full) && row.contains_key(&full) && !row.contains_key(&empty)
            });
            let Some(shard) = movable else { return };
            let voting = self.rows[shard].remove(&full).unwrap_or(true);
            *self.held.entry(full).or_default() -= 1;
            self.put(shard, empty, voting);
        }
    }

    fn places(self) -> Vec<ShardPlaces> {
        let shards = self.rows.into_iter().zip(self.primaries);
        let places = shards.filter_map(|(row, primary)| {
            let primary = primary?;
            let others = row.into_iter().filter(|(server, _)| *server != primary);
            Some(ShardPlaces { primary, replicas: std::iter::once((primary, true)).chain(others).collect() })
        });
        places.collect()
    }
}

#[cfg(test)]
mod tests;
