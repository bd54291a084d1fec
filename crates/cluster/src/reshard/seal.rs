//! Carries out a plan: seals the old groups, and writes the new groups into the catalog. The rows stay where they are.
//! Decision 0024.
//!
//! Any server can do this, wherever the rows are. It may stop at any moment: if the catalog still has the sealed groups
//! in force, their leaders open them again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datum::Bytes;
use io::task;
use log::{GroupId, Log, PeerStatus, Role};
use shard::{SealState, WriteTicket};
use storage::TableId;

use super::plan::Plan;
use super::temporary_replicas::TemporaryReplicas;
use crate::catalog::row::CatalogRow;
use crate::catalog::{CatalogClient, Draft, Handles, ShardPlacer, table_by_id};
use crate::config::{Ids, ReplicaConfig, SealedShard, ServerId, TableConfig};
use crate::error::AdminError;
use crate::membership::Membership;
use crate::routing::{LeaderLookup, LocalReplicas, ReplicaTransport, ShardHandle, TableHandle};
use crate::rpc::response::SealResponse;
use crate::rpc::{Peers, Request};

/// How long all seals may take together.
const SEAL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one leader may take to respond.
const LEADER_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval between attempts to seal.
const SEAL_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Seals groups and opens them again.
pub(crate) struct Sealer {
    own: ServerId,
    peers: Arc<Peers>,
    transport: Arc<ReplicaTransport>,
    log: Arc<dyn Log>,
    local: Arc<LocalReplicas>,
    catalog: Arc<CatalogClient>,
    placer: Arc<ShardPlacer>,
    leaders: Arc<LeaderLookup>,
    ids: Ids,
    membership: Arc<Membership>,
    temporary: Arc<TemporaryReplicas>,
}

impl Sealer {
    pub(crate) fn new(
        handles: &Handles,
        membership: Arc<Membership>,
        temporary: Arc<TemporaryReplicas>,
    ) -> Sealer {
        Sealer {
            own: handles.own,
            peers: handles.peers.clone(),
            transport: handles.transport.clone(),
            log: handles.log.clone(),
            local: handles.local.clone(),
            catalog: handles.catalog.clone(),
            placer: handles.placer.clone(),
            leaders: handles.leaders.clone(),
            ids: handles.ids.clone(),
            membership,
            temporary,
        }
    }

    /// Seals the old groups. On success no write is acknowledged in them any more, and [`Sealer::put_plan`] is next. On
    /// an error the plan is aborted.
    ///
    /// A server that is no member of a group at its seal never gets the seal, so it is dropped from the founders in
    /// `plan`. Each new shard has a founder that holds all seals it needs; that founder opens its replica once it learns
    /// that the seals are committed.
    pub(crate) fn seal(&self, id: TableId, plan: &mut Plan) -> Result<(), AdminError> {
        let catalog_deadline = task::now() + SEAL_TIMEOUT;
        // Without a catalog leader the reshard cannot succeed, and would only block writers.
        let catalog = loop {
            let catalog = self.catalog.shown();
            match self.catalog.is_latest_version(catalog.version) {
                true => break catalog,
                false if task::now() > catalog_deadline => return Err(self.catalog.no_leader_error()),
                false => task::sleep(SEAL_RETRY_INTERVAL),
            }
        };
        let handle = table_by_id(&catalog, id)?;
        if !plan.fits(&handle.config) {
            self.temporary.remove_locked(id, &plan.temporary);
            return Err(AdminError::ReplicasNotReady);
        }
        let is_enough = |sealed: &[SealResponse]| plan.can_begin(&handle.config, sealed);
        let sealed =
            self.set_seals(handle, SealState::sealed(plan.epoch), task::now() + SEAL_TIMEOUT, is_enough);
        match sealed {
            Ok(sealed) => {
                let members = sealed.into_iter().map(|response| response.members).collect();
                plan.keep_members(&handle.config, members);
                Ok(())
            }
            Err(error) => {
                self.abort(id, plan);
                Err(error)
            }
        }
    }

    /// Sets the seal state of all shards through their leaders. Returns when majorities have it and the responses,
    /// which list the replicas that hold it, satisfy `is_enough`.
    fn set_seals(
        &self,
        handle: &TableHandle,
        state: SealState,
        deadline: Instant,
        is_enough: impl Fn(&[SealResponse]) -> bool,
    ) -> Result<Vec<SealResponse>, AdminError> {
        let shards = handle.shards();
        let mut sealed: Vec<Option<SealResponse>> = vec![None; shards.len()];
        // Kept over the attempts: a lookup does not find the leader of a sealed group any more.
        let mut leaders: Vec<Option<ServerId>> = vec![None; shards.len()];
        loop {
            let open: Vec<usize> = (0..shards.len()).filter(|at| sealed[*at].is_none()).collect();
            for at in &open {
                leaders[*at] = leaders[*at].or(self.leader_of(&shards[*at]));
            }
            for (at, response) in self.request_seals(shards, &open, &leaders, state) {
                if response.is_none() {
                    leaders[at] = None;
                }
                sealed[at] = response;
            }
            if sealed.iter().all(Option::is_some) {
                let all: Vec<SealResponse> = sealed.iter().flatten().cloned().collect();
                if is_enough(&all) {
                    return Ok(all);
                }
                // More replicas will hold the seal soon: all leaders are asked again.
                sealed.fill(None);
            } else {
                // The remaining shards may have other leaders by now.
                let left = open.iter().filter(|at| sealed[**at].is_none());
                self.leaders.leaders(&left.map(|at| &shards[*at]).collect::<Vec<_>>());
            }
            if task::now() > deadline {
                return Err(AdminError::ReplicasNotReady);
            }
            task::sleep(SEAL_RETRY_INTERVAL);
        }
    }

    /// The leader of a shard, sealed or not, as far as this node knows.
    fn leader_of(&self, shard: &ShardHandle) -> Option<ServerId> {
        match shard.local().is_some_and(|local| local.leads()) {
            true => Some(self.own),
            false => shard.known_leader().leader(),
        }
    }

    /// Asks the leaders of the `open` shards once. Returns their responses by the shards' numbers.
    fn request_seals(
        &self,
        shards: &[ShardHandle],
        open: &[usize],
        leaders: &[Option<ServerId>],
        state: SealState,
    ) -> Vec<(usize, Option<SealResponse>)> {
        let is_local = |at: &usize| leaders[*at] == Some(self.own);
        let (local, remote): (Vec<usize>, Vec<usize>) = open.iter().copied().partition(is_local);
        let tickets: Vec<_> =
            local.into_iter().map(|at| (at, self.propose_seal(shards[at].group(), state))).collect();
        let (sender, responses) = task::channel();
        for at in remote {
            let Some(leader) = leaders[at] else { continue };
            let request =
                Request::SetSealNumber { group: shards[at].group(), number: state.number() }.encode();
            let sender = sender.clone();
            let on_response =
                Box::new(move |response: Result<Bytes, _>| drop(sender.send((at, response.ok()))));
            self.peers.send(leader, request, LEADER_TIMEOUT, on_response);
        }
        drop(sender);
        let mut sealed = Vec::with_capacity(open.len());
        for (at, ticket) in tickets {
            let group = shards[at].group();
            sealed.push((at, ticket.and_then(|ticket| self.await_seal(group, state, ticket)).ok()));
        }
        while let Ok((at, response)) = responses.recv() {
            sealed.push((at, response.and_then(SealResponse::decode)));
        }
        sealed
    }

    /// Sets the seal state of a group that this node leads. Returns its members and the replicas that hold the state.
    pub(crate) fn set_seal_here(&self, group: GroupId, state: SealState) -> Result<SealResponse, String> {
        self.await_seal(group, state, self.propose_seal(group, state)?)
    }

    /// Proposes a seal state; `None` if the group has it already.
    fn propose_seal(&self, group: GroupId, state: SealState) -> Result<Option<WriteTicket>, String> {
        let shard = self.local.shard_of(group).ok_or("the group has no replica on this server")?;
        if shard.seal_state() == state && shard.leads() {
            return Ok(None);
        }
        if state.is_sealed() {
            // Before the proposal, so that no write follows the seal in the log: it would be refused too late to be
            // made elsewhere.
            shard.block_writes(state);
        }
        // No change of the members is proposed while the seal is.
        let _one_at_a_time = self.membership.hold_changes();
        Ok(Some(shard.set_seal_state(state)))
    }

    fn await_seal(
        &self,
        group: GroupId,
        state: SealState,
        ticket: Option<WriteTicket>,
    ) -> Result<SealResponse, String> {
        let set = ticket.map_or(Ok(()), |ticket| ticket.wait().map(drop));
        let shard = self.local.shard_of(group).ok_or("the group has no replica on this server")?;
        if let Err(error) = set {
            shard.abandon_seal(state);
            return Err(error.to_string());
        }
        if shard.seal_state() != state {
            shard.abandon_seal(state);
            return Err("the group has a later seal state".to_owned());
        }
        let status = self.log.group_status(group).map_err(|error| error.to_string())?;
        let status = self.transport.with_connected(status);
        // The seal is applied here, and writes are blocked. With `write_acks: "single"` an entry is applied before a
        // quorum has it, so the commit position is checked as well.
        let is_committed = !state.is_sealed() || status.committed >= status.applied;
        if !matches!(status.role, Role::Leader { .. }) || !is_committed {
            return Err("no majority has the seal state, or another server leads the group by now".to_owned());
        }
        let has_it = |peer: &&PeerStatus| peer.active && !peer.needs_rows && peer.matched >= status.applied;
        let others = status.peers.iter().filter(has_it).map(|peer| peer.peer);
        let own = Some(status.own).filter(|_| status.durable >= status.applied);
        Ok(SealResponse { holders: own.into_iter().chain(others).collect(), members: status.members })
    }

    /// Puts the new shards into `config`. The servers that have all rows of a shard found it together; the others join
    /// and copy the rows.
    pub(crate) fn put_plan(
        &self,
        draft: &mut Draft,
        plan: &Plan,
        config: &mut TableConfig,
    ) -> Result<(), AdminError> {
        // Before its groups are sealed a plan has no members, and the old groups would not be listed.
        if !plan.fits(config) || plan.members.len() != plan.old.len() {
            return Err(AdminError::ReplicasNotReady);
        }
        let mut shards = self.placer.founded(draft, plan.boundaries.clone(), &plan.places);
        let mut waiting: Vec<ServerId> = Vec::new();
        for (shard, founders) in shards.iter_mut().zip(&plan.founders) {
            shard.founders.clear();
            for server in founders {
                let here = shard.replicas.iter().find(|replica| replica.server == *server).copied();
                let founder = here.unwrap_or_else(|| {
                    let founder = ReplicaConfig { server: *server, peer: self.ids.new_peer(), voting: true };
                    shard.leaving.push(founder);
                    founder
                });
                shard.founders.push(founder.peer);
            }
            waiting.extend(founders);
        }
        waiting.sort_unstable();
        waiting.dedup();
        let ends = config.shards.iter().skip(1).map(|next| Some(next.start.clone())).chain([None]);
        let sealed = config.shards.iter().zip(ends).zip(&plan.members).map(|((old, end), members)| {
            // A replica that was removed before the seal, or had not joined by then, is no member of the sealed group.
            let named = old.replicas.iter().chain(&old.leaving);
            let replicas = named.filter(|replica| members.contains(replica.peer)).copied().collect();
            SealedShard { group: old.group, start: old.start.clone(), end, replicas, epoch: plan.epoch }
        });
        config.history.sealed = sealed.collect();
        config.history.waiting = waiting;
        config.history.epoch = plan.epoch + 1;
        config.shards = shards;
        Ok(())
    }

    /// Aborts a plan: raises the table's epoch so that the plan cannot take effect any more, removes its temporary
    /// replicas, and opens the groups again. If this fails the groups' leaders do it. The caller holds the lock
    /// (`CatalogClient::lock_changes`).
    pub(crate) fn abort(&self, id: TableId, plan: &Plan) {
        let aborted = self.catalog.change_locked(|catalog, draft| {
            let Ok(handle) = table_by_id(catalog, id) else { return Ok(()) };
            let mut after = handle.config.clone();
            after.remove_temporary(&plan.temporary, |group, replica| {
                self.temporary.is_up_to_date(group, replica)
            });
            if after.history.epoch == plan.epoch {
                after.history.epoch += 1;
            }
            if after != handle.config {
                draft.put(CatalogRow::Table(after));
            }
            Ok(())
        });
        if let Err(error) = aborted {
            tracing::warn!(
                "could not abort a reshard, its shards stay sealed until their leaders open them: {error}"
            );
            return;
        }
        // The leaders would open the groups too, at their next check.
        let catalog = self.catalog.shown();
        if let Ok(handle) = table_by_id(&catalog, id)
            && handle.config.history.epoch > plan.epoch
            && handle.config.shards.iter().map(|shard| shard.group).eq(plan.old.iter().copied())
        {
            let open = SealState::open(handle.config.history.epoch);
            drop(self.set_seals(handle, open, task::now() + LEADER_TIMEOUT, |_| true));
        }
    }
}

/// Raises the table's epoch, if it is still `epoch`: a plan of that epoch cannot be carried out any more.
pub(crate) fn put_next_epoch(draft: &mut Draft, config: &TableConfig, epoch: u64) {
    if config.history.epoch == epoch {
        let mut after = config.clone();
        after.history.epoch += 1;
        draft.put(CatalogRow::Table(after));
    }
}
