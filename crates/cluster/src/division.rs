//! Which shards a table has and where: new ones, moved ones, and a table divided anew.

use std::time::Duration;

use datum::{Bytes, KeyBound, KeyRange};
use io::task;
use storage::{Part, Table, TableId};

use crate::change::Draft;
use crate::divided::Division;
use crate::node::Core;
use crate::placement::{self, ShardPlaces};
use crate::question::Question;
use crate::starts::{SHARDS_MAX, even_starts};
use crate::{
    AdminError, Catalog, PlacementError, ReplicaConfig, ServerConfig, ShardConfig, ShardsWanted, TableChange,
    TableConfig, TableHandle,
};

/// How long leadership may take to come here before a table is divided.
const HANDOVER: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

impl Core {
    /// Where the shards are to be, on servers that are connected.
    pub fn places(
        &self,
        catalog: &Catalog,
        wanted: &ShardsWanted,
        table: Option<&TableHandle>,
    ) -> Result<Vec<ShardPlaces>, AdminError> {
        match wanted {
            ShardsWanted::Named(places) if places.len() > SHARDS_MAX => {
                Err(PlacementError::TooManyShards(SHARDS_MAX).into())
            }
            ShardsWanted::Named(places) => Ok(places.clone()),
            ShardsWanted::Placed(wanted) => {
                let connected = |server: &&&ServerConfig| !server.is_proxy && self.is_connected(server.id);
                let servers: Vec<ServerConfig> =
                    catalog.servers().iter().filter(connected).map(|server| (*server).clone()).collect();
                let load = placement::load(catalog, table.map(|table| table.config.id));
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
            ShardConfig { group, start, replicas, leaving: Vec::new(), primary, founders }
        });
        shards.collect()
    }

    /// Replicas for `place`: those of `present` where they are, new ones elsewhere.
    fn named(&self, place: &ShardPlaces, present: &[ReplicaConfig]) -> Vec<ReplicaConfig> {
        let named = |(server, voting): &(crate::ServerId, bool)| {
            let known = present.iter().find(|replica| replica.server == *server);
            let peer = known.map_or_else(|| self.new_peer(), |known| known.peer);
            ReplicaConfig { server: *server, peer, voting: *voting }
        };
        place.replicas.iter().map(named).collect()
    }

    /// The same shards with other replicas. The leader of each brings its members about.
    pub(crate) fn replace_replicas(
        &self,
        config: &mut TableConfig,
        places: &[ShardPlaces],
    ) -> Result<(), AdminError> {
        for (shard, place) in config.shards.iter_mut().zip(places) {
            let is_leaving = |server| shard.leaving.iter().any(|replica| replica.server == server);
            if let Some((server, _)) = place.replicas.iter().find(|(server, _)| is_leaving(*server)) {
                return Err(AdminError::StillLeaving(*server));
            }
            let replicas = self.named(place, &shard.replicas);
            let gone = |old: &&ReplicaConfig| !replicas.iter().any(|new| new.peer == old.peer);
            shard.leaving.extend(shard.replicas.iter().filter(gone).copied());
            shard.replicas = replicas;
            shard.primary = place.primary;
        }
        Ok(())
    }

    /// Begins to divide the table anew, if the change asks for another number of shards.
    pub(crate) fn divided(&self, id: TableId, change: &TableChange) -> Result<Option<Division>, AdminError> {
        let Some(wanted) = &change.shards else { return Ok(None) };
        let catalog = self.catalog();
        let handle = crate::admin::table_by_id(&catalog, id)?;
        let places = self.places(&catalog, wanted, Some(handle))?;
        match places.len() == handle.config.shards.len() {
            true => Ok(None),
            false => self.divide(catalog.version, handle, places).map(Some),
        }
    }

    /// Ends the old shards' writes so that new ones can take over their rows, which stay where they
    /// are stored. Writers are sent back and ask again until the new shards are published.
    ///
    /// All of them must be led from here; leadership is fetched where this node has a replica, and the other
    /// members are removed.
    pub(crate) fn divide(
        &self,
        catalog_version: u64,
        handle: &TableHandle,
        places: Vec<ShardPlaces>,
    ) -> Result<Division, AdminError> {
        for shard in handle.shards() {
            self.fetch_lead(shard)?;
        }
        // Without the catalog nothing will come of it: nobody need be removed for that.
        if !self.is_newest(catalog_version) {
            return Err(AdminError::NoCatalog);
        }
        let starts = self.learned_starts(handle, places.len())?;
        let alone = self.become_sole(handle.shards().iter().map(|shard| shard.group()).collect())?;
        let mut division = Division {
            old: handle.config.shards.clone(),
            starts,
            places,
            retired: Vec::new(),
            alone,
            built: handle.built_indexes(),
        };
        for shard in handle.shards() {
            let Some(near) = shard.near() else { return Err(AdminError::NotTogether) };
            near.retire();
            division.retired.push(std::sync::Arc::clone(near));
            if let Err(error) = near.sync().wait() {
                division.undo();
                return Err(error.into());
            }
        }
        // The old groups are not replayed again, so what they applied must be on disk.
        if let Err(error) = self.engine().flush() {
            division.undo();
            return Err(error.into());
        }
        Ok(division)
    }

    /// Puts the new shards into `config`. This server founds each of them, with the rows it has; the
    /// other replicas join it and copy the rows.
    pub(crate) fn put_division(
        &self,
        draft: &mut Draft,
        division: &Division,
        config: &mut TableConfig,
    ) -> Result<(), AdminError> {
        if config.shards != division.old {
            return Err(AdminError::NotTogether);
        }
        let own = self.identity.server;
        let mut shards = self.founded(draft, division.starts.clone(), &division.places);
        for shard in &mut shards {
            let here = shard.replicas.iter().find(|replica| replica.server == own).copied();
            let founder = here.unwrap_or_else(|| {
                let founder = ReplicaConfig { server: own, peer: self.new_peer(), voting: true };
                shard.leaving.push(founder);
                founder
            });
            shard.founders = vec![founder.peer];
        }
        config.shards = shards;
        Ok(())
    }

    /// The catalog was asked to put the new shards in force; `error` says why it did not, if so.
    pub(crate) fn end_division(
        &self,
        id: TableId,
        division: Division,
        error: Option<&AdminError>,
    ) -> Result<(), AdminError> {
        match error {
            None => self.keep_built(id, &division),
            Some(error) if error.is_indeterminate() => {
                self.remember_unsettled(id, division);
                Ok(())
            }
            Some(_) => {
                division.undo();
                Ok(())
            }
        }
    }

    /// Tells the new shards, which are led from here, which indexes are built: the entries are stored
    /// under the table too, and so there already.
    pub(crate) fn keep_built(&self, id: TableId, division: &Division) -> Result<(), AdminError> {
        let catalog = self.catalog();
        let handle = crate::admin::table_by_id(&catalog, id)?;
        for index in &division.built {
            let tickets: Vec<_> =
                handle.shards().iter().filter_map(|shard| Some(shard.near()?.set_built(*index))).collect();
            tickets.into_iter().try_for_each(|ticket| ticket.wait().map(drop))?;
        }
        Ok(())
    }

    /// Asks the leader of a shard that has a replica here to hand over, and waits for that.
    fn fetch_lead(&self, shard: &crate::ShardHandle) -> Result<(), AdminError> {
        let Some(near) = shard.near() else { return Err(AdminError::NotTogether) };
        let deadline = task::now() + HANDOVER;
        while !near.is_leader() {
            if task::now() > deadline {
                return Err(AdminError::NotTogether);
            }
            if let Some(leader) = shard.lead().leader()
                && let Some(own) = task::lock(&self.hosted).get(&shard.group()).map(|open| open.own)
            {
                let question = Question::HandOver { group: shard.group(), to: own };
                drop(self.ask(leader, question.encode(), HANDOVER));
            }
            shard.wait_for_news(PAUSE);
        }
        Ok(())
    }

    /// Start keys that divide the table's present rows evenly, or the space of generated keys
    /// when there are too few rows to learn from.
    fn learned_starts(&self, table: &TableHandle, shards: usize) -> Result<Vec<Bytes>, AdminError> {
        let even = even_starts(shards.max(1));
        let Some(first) = table.shards().first() else { return Ok(even) };
        // One view over all shards; whose count it would show does not matter here.
        let whole = Part { range: KeyRange::all(), group: first.group() };
        let rows = Table::new(self.replicas.store().clone(), table.config.id).snapshot(whole)?;
        let pieces = rows.split(&KeyRange::all(), shards)?;
        let starts: Vec<Bytes> = pieces
            .iter()
            .map(|piece| match &piece.start {
                KeyBound::Included(key) | KeyBound::Excluded(key) => Bytes::copy_from_slice(key.as_bytes()),
                KeyBound::Unbounded => Bytes::new(),
            })
            .collect();
        Ok(if starts.len() == shards { starts } else { even })
    }
}
