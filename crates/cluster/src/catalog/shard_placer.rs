//! Chooses the servers of a table's shards, for new tables, reshards and moves of replicas.

use std::sync::Arc;

use datum::{Bytes, Text};

use super::draft::Draft;
use super::placement::{self, PlacementGoal, ShardPlaces};
use super::snapshot::Catalog;
use crate::config::boundaries::SHARDS_MAX;
use crate::config::{Ids, ReplicaConfig, ServerConfig, ServerId, ShardConfig, TableConfig};
use crate::error::{AdminError, PlacementError};
use crate::routing::{DiskStalls, TableHandle};
use crate::rpc::Peers;

/// The shards that a table is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DesiredShards {
    /// Shards that the cluster places.
    Placed(PlacementGoal),
    /// Shards on exactly these servers.
    Named(Vec<ShardPlaces>),
}

impl DesiredShards {
    /// This many shards with one replica each, on servers with the tag `default`.
    #[must_use]
    pub fn count(shards: usize) -> DesiredShards {
        let tag = Text::from_static("default");
        let replicas = [(tag.clone(), 1)].into();
        DesiredShards::Placed(PlacementGoal {
            shards,
            replicas,
            primary_tag: tag,
            nonvoting_tags: Vec::new(),
        })
    }
}

/// Places shards on servers and assigns ids to their replicas.
pub(crate) struct ShardPlacer {
    own: ServerId,
    peers: Arc<Peers>,
    stalls: Arc<DiskStalls>,
    ids: Ids,
}

impl ShardPlacer {
    pub(crate) fn new(own: ServerId, peers: Arc<Peers>, stalls: Arc<DiskStalls>, ids: Ids) -> ShardPlacer {
        ShardPlacer { own, peers, stalls, ids }
    }

    /// The servers of the requested shards: only connected servers, and servers with a stalled disk only where no other
    /// fits. `table` is the table that is resharded or moved; `None` for a new one.
    pub(crate) fn places(
        &self,
        catalog: &Catalog,
        desired: &DesiredShards,
        table: Option<&TableHandle>,
    ) -> Result<Vec<ShardPlaces>, AdminError> {
        match desired {
            DesiredShards::Named(places) if places.len() > SHARDS_MAX => {
                Err(PlacementError::TooManyShards(SHARDS_MAX).into())
            }
            DesiredShards::Named(places) => {
                match places.iter().all(|place| place.replicas.iter().any(|r| r.1)) {
                    true => Ok(places.clone()),
                    false => Err(PlacementError::NoReplicas.into()),
                }
            }
            // Checked here too, before memory is allocated for each shard.
            DesiredShards::Placed(goal) if goal.shards > SHARDS_MAX => {
                Err(PlacementError::TooManyShards(SHARDS_MAX).into())
            }
            DesiredShards::Placed(goal) => {
                let connected =
                    |server: &&&ServerConfig| !server.is_proxy && self.peers.is_connected(server.id);
                let servers: Vec<ServerConfig> =
                    catalog.servers().iter().filter(connected).map(|server| (*server).clone()).collect();
                let mut load = placement::load(catalog, table.map(|table| table.config.id));
                for server in servers.iter().filter(|server| self.stalls.is_stalled(server.id, self.own)) {
                    *load.entry(server.id).or_default() += placement::STALLED_WEIGHT;
                }
                let current = table.map_or_else(Vec::new, |table| {
                    let old = placement::places_of(&table.config.shards);
                    // Each new shard starts with the places of the old shard at the same fraction of the key space.
                    (0..goal.shards).map(|i| old[i * old.len() / goal.shards].clone()).collect()
                });
                Ok(placement::place(&servers, &load, goal, &current)?)
            }
        }
    }

    /// New shards with new groups; all voters are founders.
    pub(crate) fn founded(
        &self,
        draft: &mut Draft,
        boundaries: Vec<Bytes>,
        places: &[ShardPlaces],
    ) -> Vec<ShardConfig> {
        let shards = boundaries.into_iter().zip(places).map(|(start, place)| {
            let replicas = self.replicas(place, &[]);
            let founders = replicas.iter().filter(|r| r.voting).map(|r| r.peer).collect();
            let (group, primary) = (draft.new_group(), place.primary);
            ShardConfig {
                group,
                start,
                replicas,
                leaving: Vec::new(),
                temporary: Vec::new(),
                primary,
                founders,
            }
        });
        shards.collect()
    }

    /// Replicas for `place`. A server with a replica in `current` keeps its id; others get a new one.
    fn replicas(&self, place: &ShardPlaces, current: &[ReplicaConfig]) -> Vec<ReplicaConfig> {
        let replica = |(server, voting): &(ServerId, bool)| {
            let known = current.iter().find(|replica| replica.server == *server);
            let peer = known.map_or_else(|| self.ids.new_peer(), |known| known.peer);
            ReplicaConfig { server: *server, peer, voting: *voting }
        };
        place.replicas.iter().map(replica).collect()
    }

    /// Places the replicas of existing shards on other servers. The leader of each shard reconciles its members with
    /// that. Fails if a server would get a replica while its old replica of the same shard is still being removed.
    pub(crate) fn replace_replicas(
        &self,
        catalog: &Catalog,
        config: &mut TableConfig,
        places: &[ShardPlaces],
    ) -> Result<(), AdminError> {
        for (shard, place) in config.shards.iter_mut().zip(places) {
            let is_leaving = |server| shard.leaving.iter().any(|replica| replica.server == server);
            if let Some((server, _)) = place.replicas.iter().find(|(server, _)| is_leaving(*server)) {
                let name = catalog.server(*server).map(|known| known.name.to_string());
                return Err(AdminError::StillBeingRemoved {
                    server: name.unwrap_or_else(|| server.to_string()),
                });
            }
            let replicas = self.replicas(place, &shard.replicas);
            let is_removed = |old: &&ReplicaConfig| !replicas.iter().any(|new| new.peer == old.peer);
            shard.leaving.extend(shard.replicas.iter().filter(is_removed).copied());
            shard.replicas = replicas;
            // The new placement covers all replicas, so none is temporary.
            shard.temporary.clear();
            shard.primary = place.primary;
        }
        Ok(())
    }
}
