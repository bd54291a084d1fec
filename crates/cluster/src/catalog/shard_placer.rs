//! Which shards a table gets and where: new ones and moved ones.

use std::sync::Arc;

use datum::{Bytes, Text};

use super::draft::Draft;
use super::placement::{self, ShardPlaces, Wanted};
use super::snapshot::Catalog;
use crate::config::boundaries::SHARDS_MAX;
use crate::config::{Ids, ReplicaConfig, ServerConfig, ServerId, ShardConfig, TableConfig};
use crate::error::{AdminError, PlacementError};
use crate::routing::{DiskStalls, TableHandle};
use crate::rpc::Peers;

/// What shards a table is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardsWanted {
    /// So many, placed by the cluster.
    Placed(Wanted),
    /// Exactly these.
    Named(Vec<ShardPlaces>),
}

impl ShardsWanted {
    /// So many shards with one replica each, on servers with the tag `default`.
    #[must_use]
    pub fn count(shards: usize) -> ShardsWanted {
        let tag = Text::from_static("default");
        let replicas = [(tag.clone(), 1)].into();
        ShardsWanted::Placed(Wanted { shards, replicas, primary_tag: tag, nonvoting_tags: Vec::new() })
    }
}

/// Places shards on servers and names their replicas.
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

    /// Where the shards are to be, on servers that are connected; where there is a choice, on those that can write.
    pub(crate) fn places(
        &self,
        catalog: &Catalog,
        wanted: &ShardsWanted,
        table: Option<&TableHandle>,
    ) -> Result<Vec<ShardPlaces>, AdminError> {
        match wanted {
            ShardsWanted::Named(places) if places.len() > SHARDS_MAX => {
                Err(PlacementError::TooManyShards(SHARDS_MAX).into())
            }
            ShardsWanted::Named(places) => {
                match places.iter().all(|place| place.replicas.iter().any(|r| r.1)) {
                    true => Ok(places.clone()),
                    false => Err(PlacementError::NoReplicas.into()),
                }
            }
            // Before anything is made for each.
            ShardsWanted::Placed(wanted) if wanted.shards > SHARDS_MAX => {
                Err(PlacementError::TooManyShards(SHARDS_MAX).into())
            }
            ShardsWanted::Placed(wanted) => {
                let connected =
                    |server: &&&ServerConfig| !server.is_proxy && self.peers.is_connected(server.id);
                let servers: Vec<ServerConfig> =
                    catalog.servers().iter().filter(connected).map(|server| (*server).clone()).collect();
                let mut load = placement::load(catalog, table.map(|table| table.config.id));
                for server in servers.iter().filter(|server| self.stalls.is_stalled(server.id, self.own)) {
                    *load.entry(server.id).or_default() += placement::STALLED_WEIGHT;
                }
                let present = table.map_or_else(Vec::new, |table| {
                    let old = placement::places_of(&table.config.shards);
                    // A new shard begins about where an old one of the same share did.
                    (0..wanted.shards).map(|i| old[i * old.len() / wanted.shards].clone()).collect()
                });
                Ok(placement::place(&servers, &load, wanted, &present)?)
            }
        }
    }

    /// New shards, all of whose voters begin together.
    pub(crate) fn founded(
        &self,
        draft: &mut Draft,
        starts: Vec<Bytes>,
        places: &[ShardPlaces],
    ) -> Vec<ShardConfig> {
        let shards = starts.into_iter().zip(places).map(|(start, place)| {
            let replicas = self.named(place, &[]);
            let founders = replicas.iter().filter(|r| r.voting).map(|r| r.peer).collect();
            let (group, primary) = (draft.new_group(), place.primary);
            ShardConfig { group, start, replicas, leaving: Vec::new(), added: Vec::new(), primary, founders }
        });
        shards.collect()
    }

    /// Replicas for `place`: those of `present` where they are, new ones elsewhere.
    fn named(&self, place: &ShardPlaces, present: &[ReplicaConfig]) -> Vec<ReplicaConfig> {
        let named = |(server, voting): &(ServerId, bool)| {
            let known = present.iter().find(|replica| replica.server == *server);
            let peer = known.map_or_else(|| self.ids.new_peer(), |known| known.peer);
            ReplicaConfig { server: *server, peer, voting: *voting }
        };
        place.replicas.iter().map(named).collect()
    }

    /// The same shards with other replicas. The leader of each brings its members about.
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
            let replicas = self.named(place, &shard.replicas);
            let gone = |old: &&ReplicaConfig| !replicas.iter().any(|new| new.peer == old.peer);
            shard.leaving.extend(shard.replicas.iter().filter(gone).copied());
            shard.replicas = replicas;
            // All of them were asked for.
            shard.added.clear();
            shard.primary = place.primary;
        }
        Ok(())
    }
}
