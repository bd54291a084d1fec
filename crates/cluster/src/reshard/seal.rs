//! Carries out a reshard: the present groups are sealed, and the catalog puts new groups over the same rows, which stay where
//! they are. `plan` says what is to be done. Decision 0024.
//!
//! Any server does it, wherever the rows are. It may stop at any moment: the leaders of groups that are sealed and still in
//! force open them again.

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
/// The wait between two attempts to seal.
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

    /// Seals the groups before. When this succeeds nothing is acknowledged in them any more, and
    /// [`Sealer::put_plan`] is next; else it is given up.
    ///
    /// Who is no member at the seal never has it, and founds nothing: `plan` is told. Each new shard has a founder
    /// that holds all seals it needs: to begin it needs only hear that they are committed.
    pub(crate) fn seal(&self, id: TableId, plan: &mut Plan) -> Result<(), AdminError> {
        let asked_until = task::now() + SEAL_TIMEOUT;
        // Without the catalog nothing will come of it, and writers need not wait for that.
        let catalog = loop {
            let catalog = self.catalog.shown();
            match self.catalog.is_latest_version(catalog.version) {
                true => break catalog,
                false if task::now() > asked_until => return Err(self.catalog.no_leader_error()),
                false => task::sleep(SEAL_RETRY_INTERVAL),
            }
        };
        let handle = table_by_id(&catalog, id)?;
        if !plan.fits(&handle.config) {
            self.temporary.remove_held(id, &plan.added);
            return Err(AdminError::ReplicasNotReady);
        }
        let enough = |marked: &[SealResponse]| plan.can_begin(&handle.config, marked);
        let sealed =
            self.set_marks(handle, SealState::sealed(plan.epoch), task::now() + SEAL_TIMEOUT, enough);
        match sealed {
            Ok(marked) => {
                let members = marked.into_iter().map(|answer| answer.members).collect();
                plan.keep_members(&handle.config, members);
                Ok(())
            }
            Err(error) => {
                self.give_up(id, plan);
                Err(error)
            }
        }
    }

    /// Has the leaders of all shards set a mark, and returns when majorities have it, and what they say of their
    /// replicas is `enough`.
    fn set_marks(
        &self,
        handle: &TableHandle,
        mark: SealState,
        deadline: Instant,
        enough: impl Fn(&[SealResponse]) -> bool,
    ) -> Result<Vec<SealResponse>, AdminError> {
        let shards = handle.shards();
        let mut marked: Vec<Option<SealResponse>> = vec![None; shards.len()];
        // Whoever has the mark of a group is asked again: as its leader nobody finds it any more.
        let mut leaders: Vec<Option<ServerId>> = vec![None; shards.len()];
        loop {
            let open: Vec<usize> = (0..shards.len()).filter(|at| marked[*at].is_none()).collect();
            for at in &open {
                leaders[*at] = leaders[*at].or(self.leader_of(&shards[*at]));
            }
            for (at, answer) in self.ask_for_marks(shards, &open, &leaders, mark) {
                if answer.is_none() {
                    leaders[at] = None;
                }
                marked[at] = answer;
            }
            if marked.iter().all(Option::is_some) {
                let all: Vec<SealResponse> = marked.iter().flatten().cloned().collect();
                if enough(&all) {
                    return Ok(all);
                }
                // Others will have it soon.
                marked.fill(None);
            } else {
                // Another leads perhaps.
                let left = open.iter().filter(|at| marked[**at].is_none());
                self.leaders.leaders(&left.map(|at| &shards[*at]).collect::<Vec<_>>());
            }
            if task::now() > deadline {
                return Err(AdminError::ReplicasNotReady);
            }
            task::sleep(SEAL_RETRY_INTERVAL);
        }
    }

    /// The server that leads a shard, sealed or not, as far as is known here.
    fn leader_of(&self, shard: &ShardHandle) -> Option<ServerId> {
        match shard.local().is_some_and(|near| near.leads()) {
            true => Some(self.own),
            false => shard.known_leader().leader(),
        }
    }

    /// Asks the leaders of those of the shards once; by the shards' numbers what they answer.
    fn ask_for_marks(
        &self,
        shards: &[ShardHandle],
        open: &[usize],
        leaders: &[Option<ServerId>],
        mark: SealState,
    ) -> Vec<(usize, Option<SealResponse>)> {
        let is_here = |at: &usize| leaders[*at] == Some(self.own);
        let (here, elsewhere): (Vec<usize>, Vec<usize>) = open.iter().copied().partition(is_here);
        let tickets: Vec<_> =
            here.into_iter().map(|at| (at, self.propose_mark(shards[at].group(), mark))).collect();
        let (sender, answers) = task::channel();
        for at in elsewhere {
            let Some(leader) = leaders[at] else { continue };
            let request =
                Request::SetSealNumber { group: shards[at].group(), number: mark.number() }.encode();
            let sender = sender.clone();
            let told = Box::new(move |answer: Result<Bytes, _>| drop(sender.send((at, answer.ok()))));
            self.peers.send(leader, request, LEADER_TIMEOUT, told);
        }
        drop(sender);
        let mut told = Vec::with_capacity(open.len());
        for (at, ticket) in tickets {
            told.push((at, ticket.and_then(|ticket| self.marked(shards[at].group(), mark, ticket)).ok()));
        }
        while let Ok((at, answer)) = answers.recv() {
            told.push((at, answer.and_then(SealResponse::decode)));
        }
        told
    }

    /// Sets the mark of a group that is led from here; what its replicas are then.
    pub(crate) fn set_mark_here(&self, group: GroupId, mark: SealState) -> Result<SealResponse, String> {
        self.marked(group, mark, self.propose_mark(group, mark)?)
    }

    /// Nothing to wait for if the group has it already.
    fn propose_mark(&self, group: GroupId, mark: SealState) -> Result<Option<WriteTicket>, String> {
        let shard = self.local.shard_of(group).ok_or("the group is not here")?;
        if shard.seal_state() == mark && shard.leads() {
            return Ok(None);
        }
        if mark.is_sealed() {
            // Nobody's write is refused behind the seal, when it is too late to make it elsewhere.
            shard.block_writes(mark);
        }
        // No change of its members is proposed between this and the end of the seal.
        let _one_at_a_time = self.membership.hold_changes();
        Ok(Some(shard.set_seal_state(mark)))
    }

    fn marked(
        &self,
        group: GroupId,
        mark: SealState,
        ticket: Option<WriteTicket>,
    ) -> Result<SealResponse, String> {
        let set = ticket.map_or(Ok(()), |ticket| ticket.wait().map(drop));
        let shard = self.local.shard_of(group).ok_or("the group is not here")?;
        if let Err(error) = set {
            shard.abandon_seal(mark);
            return Err(error.to_string());
        }
        if shard.seal_state() != mark {
            shard.abandon_seal(mark);
            return Err("the group has a later mark".to_owned());
        }
        let status = self.log.group_status(group).map_err(|error| error.to_string())?;
        let status = self.transport.with_connected(status);
        // It is applied here, and writers are held back. Where one replica is enough for an acknowledgement a majority
        // need not have it.
        let is_known = !mark.is_sealed() || status.committed >= status.applied;
        if !matches!(status.role, Role::Leader { .. }) || !is_known {
            return Err("no majority has the mark, or the group is led from elsewhere by now".to_owned());
        }
        let has_it = |peer: &&PeerStatus| peer.active && !peer.needs_rows && peer.matched >= status.applied;
        let others = status.peers.iter().filter(has_it).map(|peer| peer.peer);
        let own = Some(status.own).filter(|_| status.durable >= status.applied);
        Ok(SealResponse { holders: own.into_iter().chain(others).collect(), members: status.members })
    }

    /// Puts the new shards into `config`. Whoever has all rows of one founds it together with the others who
    /// do; the rest join and copy them.
    pub(crate) fn put_plan(
        &self,
        draft: &mut Draft,
        plan: &Plan,
        config: &mut TableConfig,
    ) -> Result<(), AdminError> {
        // What was not sealed has no members, and would be listed nowhere.
        if !plan.fits(config) || plan.members.len() != plan.old.len() {
            return Err(AdminError::ReplicasNotReady);
        }
        let mut shards = self.placer.founded(draft, plan.starts.clone(), &plan.places);
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
            // Who was removed before, or never came to be a member, has no part of it.
            let named = old.replicas.iter().chain(&old.leaving);
            let replicas = named.filter(|replica| members.contains(replica.peer)).copied().collect();
            SealedShard { group: old.group, start: old.start.clone(), end, replicas, epoch: plan.epoch }
        });
        config.lineage.sealed = sealed.collect();
        config.lineage.waiting = waiting;
        config.lineage.epoch = plan.epoch + 1;
        config.shards = shards;
        Ok(())
    }

    /// Makes certain that nothing will come of a plan, so that the groups may be opened again, and takes away what was
    /// added for it. If this does not succeed their leaders do it. To be called while `changing` is held.
    pub(crate) fn give_up(&self, id: TableId, plan: &Plan) {
        let given_up = self.catalog.change_locked(|catalog, draft| {
            let Ok(handle) = table_by_id(catalog, id) else { return Ok(()) };
            let mut after = handle.config.clone();
            after
                .remove_temporary(&plan.added, |group, replica| self.temporary.is_up_to_date(group, replica));
            if after.lineage.epoch == plan.epoch {
                after.lineage.epoch += 1;
            }
            if after != handle.config {
                draft.put(CatalogRow::Table(after));
            }
            Ok(())
        });
        if let Err(error) = given_up {
            tracing::warn!("The shards of a table are sealed and nothing came of it; they wait: {error}");
            return;
        }
        // Their leaders would do it, when they look the next time.
        let catalog = self.catalog.shown();
        if let Ok(handle) = table_by_id(&catalog, id)
            && handle.config.lineage.epoch > plan.epoch
            && handle.config.shards.iter().map(|shard| shard.group).eq(plan.old.iter().copied())
        {
            let open = SealState::open(handle.config.lineage.epoch);
            drop(self.set_marks(handle, open, task::now() + LEADER_TIMEOUT, |_| true));
        }
    }
}

/// Raises the table's epoch, if it is still `epoch`: a plan of that epoch cannot be carried out any more.
pub(crate) fn put_next_epoch(draft: &mut Draft, config: &TableConfig, epoch: u64) {
    if config.lineage.epoch == epoch {
        let mut after = config.clone();
        after.lineage.epoch += 1;
        draft.put(CatalogRow::Table(after));
    }
}
