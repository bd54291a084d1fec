//! The plan of a reshard: the boundaries of the new shards, which servers have all rows of each of them already, and
//! which replicas are missing. `seal` carries it out. Decision 0024.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datum::{Bytes, KeyBound, KeyRange};
use io::task;
use log::{GroupId, Members};
use storage::TableId;

use super::TableChange;
use super::handover::HandoverEnd;
use super::preparation::{PREPARATION_TIMEOUT, preparation_timeout};
use super::quorum::{QuorumTimeout, TableQuorum};
use super::shard_layout::{ShardLayout, predecessors_of};
use super::split_points::{RangeEstimate, even_boundaries_of};
use super::temporary_replicas::TemporaryReplicas;
use crate::catalog::placement::{ShardPlaces, places_of};
use crate::catalog::row::CatalogRow;
use crate::catalog::{CatalogClient, Handles, ShardPlacer, table_by_id};
use crate::config::boundaries::{SHARDS_MAX, even_boundaries};
use crate::config::{Ids, ReplicaConfig, ServerId, ShardConfig, TableConfig};
use crate::error::AdminError;
use crate::routing::{LeaderLookup, LocalReplicas, ShardHandle, TableHandle};
use crate::rpc::response::{GroupState, SealResponse};
use crate::rpc::split_points::SplitPointsResponse;
use crate::rpc::{Peers, Request};

/// How long one leader may take to respond.
const LEADER_TIMEOUT: Duration = Duration::from_secs(2);
/// Up to this many rows, split points come from reading all keys: the engine's size estimates are bad for rows still in
/// memory.
const ROWS_WALKED_MAX: u64 = 50_000;
/// The wait between two attempts to plan.
const PLAN_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The new shards of a table, computed from its present ones.
pub(crate) struct Plan {
    pub(crate) old: Vec<GroupId>,
    /// The places of the old groups' replicas when the plan was made.
    before: Vec<ShardPlaces>,
    pub(crate) epoch: u64,
    pub(crate) boundaries: Vec<Bytes>,
    pub(crate) places: Vec<ShardPlaces>,
    /// For each new shard the servers that have all of its rows already.
    pub(crate) founders: Vec<Vec<ServerId>>,
    /// The members of each old group at its seal. Empty until the groups are sealed.
    pub(crate) members: Vec<Members>,
    /// The old groups and servers with a temporary replica or vote for this plan, which is removed if the plan is
    /// aborted.
    pub(crate) temporary: Vec<(GroupId, ServerId)>,
}

/// The goal of a plan.
#[derive(Clone, Copy)]
enum Goal<'a> {
    /// The shards of the change, if their number differs from the present one.
    Change(&'a TableChange),
    /// As many shards as now, of equal size.
    Even,
}

/// The result of one attempt to plan.
enum Planned {
    Nothing,
    NotYet,
    Done(Plan),
}

/// Makes plans, and adds the temporary replicas that they need.
pub(crate) struct Planner {
    own: ServerId,
    peers: Arc<Peers>,
    local: Arc<LocalReplicas>,
    catalog: Arc<CatalogClient>,
    placer: Arc<ShardPlacer>,
    leaders: Arc<LeaderLookup>,
    ids: Ids,
    quorum: Arc<TableQuorum>,
    temporary: Arc<TemporaryReplicas>,
    handovers: Arc<HandoverEnd>,
}

impl Planner {
    pub(crate) fn new(
        handles: &Handles,
        quorum: Arc<TableQuorum>,
        temporary: Arc<TemporaryReplicas>,
        handovers: Arc<HandoverEnd>,
    ) -> Planner {
        Planner {
            own: handles.own,
            peers: handles.peers.clone(),
            local: handles.local.clone(),
            catalog: handles.catalog.clone(),
            placer: handles.placer.clone(),
            leaders: handles.leaders.clone(),
            ids: handles.ids.clone(),
            quorum,
            temporary,
            handovers,
        }
    }

    /// The plan that gives the table as many shards as `change` says; `None` if it has that many. Waits, while
    /// `should_continue` returns true, until each new shard has a server with all of its rows.
    pub(crate) fn plan_change(
        &self,
        id: TableId,
        change: &TableChange,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<Option<Plan>, AdminError> {
        let shards = table_by_id(&self.catalog.shown(), id)?.config.shards.len();
        self.plan(id, Goal::Change(change), task::now() + preparation_timeout(shards), should_continue)
    }

    /// The plan that makes the table's shards equal in size. Waits until `deadline` at most.
    pub(crate) fn plan_even(
        &self,
        id: TableId,
        deadline: Instant,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<Option<Plan>, AdminError> {
        self.plan(id, Goal::Even, deadline, should_continue)
    }

    fn plan(
        &self,
        id: TableId,
        goal: Goal<'_>,
        deadline: Instant,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<Option<Plan>, AdminError> {
        let (mut layout, mut added) = (None, Vec::new());
        let mut planned = Ok(Planned::NotYet);
        let mut timeout = QuorumTimeout::new(&self.quorum, id);
        while matches!(planned, Ok(Planned::NotYet)) && should_continue() && task::now() < deadline {
            planned = self.try_to_plan(id, goal, deadline, &mut layout, &mut added);
            if matches!(planned, Ok(Planned::NotYet)) {
                task::sleep(PLAN_RETRY_INTERVAL);
                if !timeout.is_left() {
                    break;
                }
            }
        }
        if let Ok(Planned::Done(plan)) = planned {
            return Ok(Some(Plan { temporary: added, ..plan }));
        }
        self.temporary.remove(id, &added);
        match planned? {
            Planned::Nothing => Ok(None),
            _ => Err(self.quorum.missing(id).unwrap_or(AdminError::ReplicasNotReady)),
        }
    }

    /// One attempt. Later attempts keep `layout`, unless another change moves the table's replicas. Notes temporary
    /// replicas and votes in `added`.
    fn try_to_plan(
        &self,
        id: TableId,
        goal: Goal<'_>,
        deadline: Instant,
        layout: &mut Option<ShardLayout>,
        added: &mut Vec<(GroupId, ServerId)>,
    ) -> Result<Planned, AdminError> {
        let catalog = self.catalog.shown();
        let handle = table_by_id(&catalog, id)?;
        let old = &handle.config.shards;
        if layout.as_ref().is_some_and(|layout| !layout.is_of(old)) {
            *layout = None;
        }
        let places = match (layout.as_ref(), goal) {
            (Some(layout), _) => layout.places.clone(),
            (None, Goal::Even) => places_of(old),
            (None, Goal::Change(TableChange { shards: Some(desired), .. })) => {
                self.placer.places(&catalog, desired, Some(handle))?
            }
            (None, Goal::Change(_)) => return Ok(Planned::Nothing),
        };
        if matches!(goal, Goal::Change(_)) && places.len() == old.len() {
            return Ok(Planned::Nothing);
        }
        // One reshard at a time: the groups sealed by the last one are still needed.
        if !handle.config.history.sealed.is_empty() {
            let is_late = deadline - task::now() < PREPARATION_TIMEOUT / 2;
            if is_late {
                self.handovers
                    .replace_missing_founders(&handle.config, |server| !self.peers.is_connected(server))?;
            }
            return Ok(Planned::NotYet);
        }
        let Some(ready) = self.ready_servers(handle) else { return Ok(Planned::NotYet) };
        let layout = match layout {
            Some(layout) => layout,
            None => {
                let Some(boundaries) = self.new_boundaries(handle, places.len()) else {
                    return Ok(Planned::NotYet);
                };
                layout.insert(ShardLayout::new(old, boundaries, places, deadline))
            }
        };
        let work = layout.work(old, &ready, |server| self.peers.is_connected(server));
        if work.lags && task::now() < layout.lag_until {
            return Ok(Planned::NotYet);
        }
        if !work.missing.is_empty() {
            self.add_replicas(id, &work.missing, layout, added)?;
            return Ok(Planned::NotYet);
        }
        if work.founders.iter().any(Vec::is_empty) {
            return Ok(Planned::NotYet);
        }
        let epoch = handle.config.history.epoch;
        Ok(Planned::Done(Plan::of(layout, epoch, work.founders)))
    }

    /// For each shard the servers whose voting replicas are up to date; `None` if a shard has no known leader.
    fn ready_servers(&self, handle: &TableHandle) -> Option<Vec<Vec<ServerId>>> {
        let shards: Vec<&ShardHandle> = handle.shards().iter().collect();
        let led = self.leaders.leaders(&shards);
        let ready = |(config, led): (&ShardConfig, Option<(ServerId, GroupState)>)| {
            let (_, state) = led?;
            let is_ready = |r: &&ReplicaConfig| r.voting && state.ready.contains(&r.peer);
            let there = config.replicas.iter().chain(&config.leaving).filter(is_ready);
            let there = there.map(|replica| replica.server);
            Some(there.filter(|server| self.peers.is_connected(*server)).collect())
        };
        handle.config.shards.iter().zip(led).map(ready).collect()
    }

    /// Adds temporary voting replicas: `missing` has pairs of a shard's number and a server. Notes in `added` the
    /// servers that had none. Does nothing if another change has moved the table's replicas since the layout was made.
    fn add_replicas(
        &self,
        id: TableId,
        missing: &[(usize, ServerId)],
        layout: &ShardLayout,
        added: &mut Vec<(GroupId, ServerId)>,
    ) -> Result<(), AdminError> {
        let mut added_now = Vec::new();
        let outcome = self.catalog.change(|catalog, draft| {
            added_now.clear();
            let mut config = table_by_id(catalog, id)?.config.clone();
            if !layout.is_of(&config.shards) {
                return Ok(());
            }
            for (at, server) in missing {
                let Some(shard) = config.shards.get_mut(*at) else { continue };
                if shard.add_temporary(*server, || self.ids.new_peer()) {
                    added_now.push((shard.group, *server));
                }
            }
            if !added_now.is_empty() {
                draft.put(CatalogRow::Table(config));
            }
            Ok(())
        });
        // On an error too: the change may have taken effect all the same.
        added.extend(added_now);
        outcome
    }

    /// Start keys that divide the table's present rows evenly, or the space of generated keys if there are too few rows
    /// to sample; `None` if a leader does not respond.
    fn new_boundaries(&self, handle: &TableHandle, shards: usize) -> Option<Vec<Bytes>> {
        // A single shard is split at the keys that its leader returns. Several are divided into smaller ranges, which
        // are combined.
        let parts = if handle.shards().len() == 1 { shards } else { 8 * shards };
        let mut ranges: Vec<RangeEstimate> = Vec::new();
        for (shard, config) in handle.shards().iter().zip(&handle.config.shards) {
            let response = self.split_points_of(shard, parts as u64)?;
            let starts: Vec<Bytes> = std::iter::once(config.start.clone()).chain(response.keys).collect();
            let rows = response.rows as f64 / starts.len() as f64;
            let range = |(i, start): (usize, Bytes)| RangeEstimate { start, rows, is_old: i == 0 };
            ranges.extend(starts.into_iter().enumerate().map(range));
        }
        Some(even_boundaries_of(&ranges, shards).unwrap_or_else(|| even_boundaries(shards)))
    }

    fn split_points_of(&self, shard: &ShardHandle, parts: u64) -> Option<SplitPointsResponse> {
        let group = shard.group();
        if shard.local().is_some_and(|local| local.is_leader()) {
            return self.split_points_here(group, parts).ok();
        }
        let leader = shard.known_leader().leader().filter(|leader| *leader != self.own)?;
        SplitPointsResponse::decode(
            self.peers.call(leader, Request::SplitPoints { group, parts }.encode(), LEADER_TIMEOUT).ok()?,
        )
    }

    /// Where a shard that this node leads may be split into about this many parts.
    pub(crate) fn split_points_here(
        &self,
        group: GroupId,
        parts: u64,
    ) -> Result<SplitPointsResponse, String> {
        let shard = self
            .local
            .shard_of(group)
            .filter(|shard| shard.is_leader())
            .ok_or("this server does not lead the shard")?;
        let parts = usize::try_from(parts).unwrap_or(usize::MAX).clamp(1, 8 * SHARDS_MAX);
        let snapshot = shard.snapshot().map_err(|error| error.to_string())?;
        let rows = shard.count();
        let ranges = match rows {
            ..=ROWS_WALKED_MAX => snapshot.split_evenly(shard.range(), parts),
            _ => snapshot.split(shard.range(), parts),
        };
        let ranges = ranges.map_err(|error| error.to_string())?;
        let start = |range: &KeyRange| match &range.start {
            KeyBound::Included(key) | KeyBound::Excluded(key) => Some(Bytes::copy_from_slice(key.as_bytes())),
            KeyBound::Unbounded => None,
        };
        Ok(SplitPointsResponse { rows, keys: ranges.iter().skip(1).filter_map(start).collect() })
    }
}

impl Plan {
    fn of(layout: &ShardLayout, epoch: u64, founders: Vec<Vec<ServerId>>) -> Plan {
        Plan {
            old: layout.old.clone(),
            before: layout.before.clone(),
            epoch,
            boundaries: layout.boundaries.clone(),
            places: layout.places.clone(),
            founders,
            members: Vec::new(),
            temporary: Vec::new(),
        }
    }

    /// Whether each new shard has a founder that holds the seals of all groups that it needs.
    pub(crate) fn can_begin(&self, config: &TableConfig, sealed: &[SealResponse]) -> bool {
        let holds = |predecessor: usize, server: ServerId| {
            let replica = config.shards[predecessor].replica_on(server);
            replica.is_some_and(|replica| sealed[predecessor].holders.contains(&replica.peer))
        };
        self.founders.iter().enumerate().all(|(new, founders)| {
            let predecessors = predecessors_of(&config.shards, &self.boundaries, new);
            founders.iter().any(|server| predecessors.iter().all(|predecessor| holds(*predecessor, *server)))
        })
    }

    /// Drops founders that are not members of all old groups whose rows they need.
    pub(crate) fn keep_members(&mut self, config: &TableConfig, members: Vec<Members>) {
        let is_member = |predecessor: usize, server: ServerId| {
            let replica = config.shards[predecessor].replica_on(server);
            replica.is_some_and(|replica| members[predecessor].contains(replica.peer))
        };
        for (new, founders) in self.founders.iter_mut().enumerate() {
            let predecessors = predecessors_of(&config.shards, &self.boundaries, new);
            founders.retain(|server| predecessors.iter().all(|predecessor| is_member(*predecessor, *server)));
        }
        self.members = members;
    }

    /// Whether the plan still fits the table. Otherwise it would undo a move of replicas that was made, and confirmed
    /// to its client, after the plan.
    pub(crate) fn fits(&self, config: &TableConfig) -> bool {
        config.history.epoch == self.epoch
            && config.history.sealed.is_empty()
            && config.shards.iter().map(|shard| shard.group).eq(self.old.iter().copied())
            && places_of(&config.shards) == self.before
    }
}

#[cfg(test)]
mod tests {
    use log::Lsn;

    use super::*;
    use crate::config::fixture::{peer, server, shard, table};

    fn response(group: u64, members: &[u64], holders: &[u64]) -> SealResponse {
        let peers = |servers: &[u64]| servers.iter().map(|n| peer(group, *n)).collect();
        let members = Members { at: Lsn(1), voters: peers(members), ..Members::default() };
        SealResponse { members, holders: peers(holders) }
    }

    fn plan(boundaries: &[&'static [u8]], founders: &[&[u64]]) -> Plan {
        Plan {
            old: vec![GroupId(3), GroupId(4)],
            before: Vec::new(),
            epoch: 0,
            boundaries: boundaries.iter().map(|start| Bytes::from_static(start)).collect(),
            places: Vec::new(),
            founders: founders.iter().map(|those| those.iter().map(|n| server(*n)).collect()).collect(),
            members: Vec::new(),
            temporary: Vec::new(),
        }
    }

    #[test]
    fn a_new_shard_needs_a_founder_with_the_seals_of_all_groups_that_have_keys_of_it() {
        let config = table(vec![shard(3, b"", &[1, 2]), shard(4, b"m", &[1, 2, 3])]);
        let merged = plan(&[b""], &[&[1, 2]]);
        let all = response(3, &[1, 2], &[1, 2]);
        for (holders, can_begin) in [(&[1_u64, 3][..], true), (&[3, 2], true), (&[3], false)] {
            let sealed = [all.clone(), response(4, &[1, 2, 3], holders)];
            assert_eq!(merged.can_begin(&config, &sealed), can_begin, "{holders:?}");
        }
        // Each founder has the seal of one group only.
        assert!(!merged.can_begin(&config, &[response(3, &[1, 2], &[1]), response(4, &[1, 2, 3], &[2, 3])]));
        // Each of three new shards needs the groups that have keys of it.
        let split = plan(&[b"", b"c", b"p"], &[&[1], &[1, 2], &[3]]);
        let sealed = |holders: &[u64]| [response(3, &[1, 2], &[1]), response(4, &[1, 2, 3], holders)];
        assert!(split.can_begin(&config, &sealed(&[1, 3])));
        assert!(!split.can_begin(&config, &sealed(&[1, 2])), "the last has no founder");
        assert!(!split.can_begin(&config, &sealed(&[3])), "the second has no founder");
    }

    #[test]
    fn a_server_that_is_no_member_at_the_seal_founds_nothing() {
        let config = table(vec![shard(3, b"", &[1, 2]), shard(4, b"m", &[1, 2])]);
        let mut split = plan(&[b"", b"c", b"p"], &[&[1, 2], &[1, 2], &[1, 2]]);
        let members = [response(3, &[1, 2], &[]), response(4, &[1], &[])].map(|response| response.members);
        split.keep_members(&config, members.to_vec());
        let (one, both) = (vec![server(1)], vec![server(1), server(2)]);
        assert_eq!((split.founders, split.members), (vec![both, one.clone(), one], members.to_vec()));
    }

    #[test]
    fn a_plan_fits_the_table_until_its_replicas_are_moved() {
        let config = table(vec![shard(3, b"", &[1, 2]), shard(4, b"m", &[2, 1])]);
        let plan = Plan { before: places_of(&config.shards), ..plan(&[b""], &[&[1, 2]]) };
        assert!(plan.fits(&config));
        let with = |change: &dyn Fn(&mut TableConfig)| {
            let mut config = config.clone();
            change(&mut config);
            plan.fits(&config)
        };
        assert!(
            with(&|config| assert!(config.shards[0].add_temporary(server(3), || peer(3, 3)))),
            "a temporary replica"
        );
        assert!(with(&|config| config.shards[0].replicas[0].peer = peer(3, 9)), "another peer id");
        assert!(!with(&|config| config.shards[0].primary = server(2)));
        assert!(!with(&|config| config.shards[1].replicas[0].server = server(3)));
        assert!(!with(&|config| config.shards[1].replicas[1].voting = false));
        assert!(!with(&|config| config.history.epoch = 1));
    }
}
