//! Whether those who vote in a group are enough, and who is missing: told by the members that the replicas know, since
//! those that the catalog wants may not have come yet (decision 0015).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use io::task;
use log::{GroupId, Members, PeerId};
use storage::TableId;

use crate::admin::table_by_id;
use crate::most_complete::{MostComplete, everyone};
use crate::node::Core;
use crate::{
    AdminError, Catalog, ReplicaConfig, ServerId, ShardConfig, ShardPlaces, ShardsWanted, TableConfig,
    places_of, words,
};

/// How long servers without which a shard has no majority may be away.
pub(crate) const MAJORITY_PATIENCE: Duration = Duration::from_secs(5);
/// How long a replica may take to say who votes in its group.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks whether somebody has come back.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Whether servers may be waited for without which a table has no majority: not for long.
pub(crate) struct MajorityPatience<'a> {
    core: &'a Core,
    table: TableId,
    majority_at: Instant,
}

impl<'a> MajorityPatience<'a> {
    /// From now on.
    pub(crate) fn new(core: &'a Core, table: TableId) -> MajorityPatience<'a> {
        MajorityPatience { core, table, majority_at: task::now() }
    }

    /// Whether that is so still. To be asked now and then.
    pub(crate) fn is_left(&mut self) -> bool {
        if self.core.no_majority(self.table).is_none() {
            self.majority_at = task::now();
        }
        task::now() <= self.majority_at + MAJORITY_PATIENCE
    }
}

/// Shards of a table that have no majority, and who is missing of each.
#[derive(Default)]
pub(crate) struct Lacking(Vec<(GroupId, BTreeSet<ServerId>)>);

impl Lacking {
    /// Fails if one of these would be given other replicas than it has: that would not come about, and what the table
    /// shows would not be so.
    pub(crate) fn refuse(
        &self,
        catalog: &Catalog,
        config: &TableConfig,
        wanted: &[ShardPlaces],
    ) -> Result<(), AdminError> {
        let present = places_of(&config.shards);
        // Another number of shards is made of all.
        let is_changed = |nth: usize| present.len() != wanted.len() || present[nth] != wanted[nth];
        let shards = config.shards.iter().enumerate();
        let changed: BTreeSet<GroupId> =
            shards.filter(|(nth, _)| is_changed(*nth)).map(|(_, shard)| shard.group).collect();
        let lacking = || self.0.iter().filter(|(group, _)| changed.contains(group));
        let away: BTreeSet<ServerId> = lacking().flat_map(|(_, away)| away).copied().collect();
        match lacking().next() {
            Some(_) => Err(AdminError::NoMajority { servers: words::named(catalog, &away) }),
            None => Ok(()),
        }
    }
}

impl Core {
    /// Where [`Core::change_table_while`] would put the shards of a table; nothing is changed.
    ///
    /// Fails as the change would where shards without a majority would get other replicas, and waits for one as long.
    pub fn plan_places(
        &self,
        id: TableId,
        wanted: &ShardsWanted,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Vec<ShardPlaces>, AdminError> {
        self.await_majority(id, Some(wanted), go_on)?;
        let catalog = self.catalog();
        self.places(&catalog, wanted, Some(table_by_id(&catalog, id)?))
    }

    /// Waits, not for long, while a shard of a table that is to have other replicas has no majority to bring that
    /// about. Returns the shards that have none and stay as they are; nothing is asked where nothing is `wanted`.
    pub(crate) fn await_majority(
        &self,
        id: TableId,
        wanted: Option<&ShardsWanted>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Lacking, AdminError> {
        let Some(wanted) = wanted else { return Ok(Lacking::default()) };
        let until = task::now() + MAJORITY_PATIENCE;
        loop {
            let catalog = self.catalog();
            let handle = table_by_id(&catalog, id)?;
            let places = self.places(&catalog, wanted, Some(handle))?;
            if places == places_of(&handle.config.shards) {
                return Ok(Lacking::default());
            }
            let lacking = self.lacking(&handle.config);
            match lacking.refuse(&catalog, &handle.config, &places) {
                Ok(()) => return Ok(lacking),
                Err(_) if go_on() && task::now() < until => task::sleep(PAUSE),
                Err(refused) => return Err(refused),
            }
        }
    }

    /// The shards of a table that have no majority. Asks those who are connected.
    fn lacking(&self, config: &TableConfig) -> Lacking {
        let ends = self.ask_ends(config.shards.iter(), PATIENCE);
        let lacks = |shard: &ShardConfig| {
            let known: Vec<ReplicaConfig> = everyone(shard).copied().collect();
            let voters = match MostComplete::of(ends.of_shard(shard)) {
                Some(found) if !found.members.voters.is_empty() => {
                    self.servers_of(&found.members.voters, &known)
                }
                // Not begun yet perhaps, or those that answer have not heard who votes.
                _ => shard.replicas.iter().filter(|r| r.voting).map(|r| Some(r.server)).collect(),
            };
            let lives = |server: &Option<ServerId>| server.is_some_and(|server| self.is_connected(server));
            let away = || voters.iter().filter(|server| !lives(server));
            (away().count() * 2 >= voters.len()).then(|| (shard.group, away().flatten().copied().collect()))
        };
        Lacking(config.shards.iter().filter_map(lacks).collect())
    }

    /// Whether most who vote in a group are connected, as far as it is known where they are. The vote of a proxy is
    /// nobody's.
    pub(crate) fn has_majority(&self, members: &Members, known: &[ReplicaConfig]) -> bool {
        let servers = self.servers_of(&members.voters, known);
        let catalog = self.catalog();
        let lives = |id: &ServerId| {
            self.is_connected(*id) && !catalog.server(*id).is_some_and(|server| server.is_proxy)
        };
        let living = servers.iter().flatten().filter(|server| lives(server)).count();
        living * 2 > servers.len()
    }

    /// Where replicas are, as far as that is known.
    fn servers_of(&self, peers: &[PeerId], known: &[ReplicaConfig]) -> Vec<Option<ServerId>> {
        let server_of = |peer: &PeerId| {
            let known = known.iter().find(|replica| replica.peer == *peer);
            known.map(|replica| replica.server).or_else(|| self.post.server_of(*peer))
        };
        peers.iter().map(server_of).collect()
    }

    /// Which servers are away of shards whose other replicas are no majority, if there are such shards. Asks nobody.
    pub(crate) fn no_majority(&self, id: TableId) -> Option<AdminError> {
        let catalog = self.catalog();
        let voters = |shard: &ShardConfig| {
            let voters = shard.replicas.iter().filter(|replica| replica.voting);
            voters.map(|replica| replica.server).collect::<Vec<_>>()
        };
        let is_away = |server: &ServerId| !self.is_connected(*server);
        let shards = table_by_id(&catalog, id).ok()?.config.shards.iter().map(voters);
        let lost = shards
            .filter(|voters| voters.iter().filter(|server| !is_away(server)).count() * 2 <= voters.len());
        let away: BTreeSet<ServerId> = lost.flatten().filter(is_away).collect();
        (!away.is_empty()).then(|| AdminError::NoMajority { servers: words::named(&catalog, &away) })
    }
}
