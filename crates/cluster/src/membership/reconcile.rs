//! Reconciles the members of a group with the catalog: adds new replicas as learners, promotes them to voters, then removes
//! old replicas; and moves leadership to the server that the catalog prefers.
//!
//! The leader makes one change at a time and derives it from the present members, so the next leader continues an
//! interrupted series of changes.

use std::sync::Arc;
use std::time::Duration;

use io::task;
use log::{GroupId, Log, MemberChange, PeerId, Role};
use storage::TableId;

use super::liveness::{Liveness, Probes, WaitingLog};
use super::log_positions::PositionLookup;
use super::next_change::{Change, DesiredMembers, next_change};
use crate::catalog::row::CatalogRow;
use crate::catalog::{CatalogClient, Handles, display_names};
use crate::config::{CATALOG_GROUP, Ids, ReplicaConfig, ServerId};
use crate::error::AdminError;
use crate::locks::{Rank, RankedGuard, RankedMutex};
use crate::routing::{LocalReplicas, ReplicaTransport};
use crate::rpc::Peers;

/// How long one membership change may take before it is tried again.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Changes the members of the groups that this node leads.
pub(crate) struct Membership {
    own: ServerId,
    peers: Arc<Peers>,
    transport: Arc<ReplicaTransport>,
    log: Arc<dyn Log>,
    local: Arc<LocalReplicas>,
    catalog: Arc<CatalogClient>,
    liveness: Liveness,
    ids: Ids,
    /// Held while a membership change or a seal is proposed.
    changes: RankedMutex<()>,
}

impl Membership {
    pub(crate) fn new(handles: &Handles, positions: Arc<PositionLookup>) -> Membership {
        let (transport, log, catalog) =
            (handles.transport.clone(), handles.log.clone(), handles.catalog.clone());
        Membership {
            own: handles.own,
            peers: handles.peers.clone(),
            local: handles.local.clone(),
            liveness: Liveness::new(transport.clone(), log.clone(), catalog.clone(), positions),
            transport,
            log,
            catalog,
            ids: handles.ids.clone(),
            changes: RankedMutex::new(Rank::MemberChange, ()),
        }
    }

    /// Prevents membership changes from being proposed while the guard is held, as during the proposal of a seal.
    pub(crate) fn hold_changes(&self) -> RankedGuard<'_, ()> {
        self.changes.lock()
    }

    /// Makes the next change of a group's members towards `desired`. True if no change is left to make.
    ///
    /// `others` are the groups that are reconciled after this one: their members and this group's are probed together.
    pub(crate) fn reconcile<'a>(
        &self,
        desired: &'a DesiredMembers,
        others: impl Iterator<Item = &'a DesiredMembers>,
        probes: &mut Probes,
        waiting: &mut WaitingLog,
    ) -> bool {
        let group = desired.group;
        if desired.replicas.is_empty() {
            return true;
        }
        if let [only] = &desired.replicas[..]
            && !desired.is_leaving
            && self.is_alone(group, only)
        {
            return true;
        }
        let status = self.log.group_status(group).map(|status| self.transport.with_connected(status));
        let Ok(mut status) = status else { return false };
        if !matches!(status.role, Role::Leader { .. }) {
            return false;
        }
        let mut change = next_change(&status, desired);
        if change.changes_votes(&status.members) {
            status = self.liveness.with_probed(desired, status, others, probes);
            change = next_change(&status, desired);
        }
        self.liveness.log_waiting(desired, &status, waiting);
        match change {
            Change::Nothing => true,
            Change::Wait => false,
            Change::Transfer(to) => {
                self.log.transfer(group, to);
                // A leader that is to be removed must transfer leadership first. A transfer from any other leader is only a
                // preference, and leaves no change to make.
                desired.replicas.iter().any(|replica| replica.peer == status.own)
            }
            Change::Replace(removed) => {
                let replaced =
                    desired.table.map_or(Ok(()), |table| self.replace_removed(table, group, removed));
                if let Err(error) = replaced {
                    let catalog = self.catalog.shown();
                    let (server, of) = (self.name_of(removed), display_names::group(&catalog, group));
                    tracing::warn!("could not replace the removed replica of {of} on {server}: {error}");
                }
                false
            }
            Change::Members(MemberChange::Remove(_))
                if desired.table.is_some() && !self.catalog.is_latest_version(desired.version) =>
            {
                false
            }
            Change::Members(change) => {
                if self.change_members(group, change) {
                    // The loop makes the next change at once.
                    task::unpark_self();
                }
                false
            }
        }
    }

    /// Whether the only replica that a group has, and is to have, is on this node: the log need not be asked then. A node
    /// without a transport is the only server of its cluster.
    fn is_alone(&self, group: GroupId, only: &ReplicaConfig) -> bool {
        group != CATALOG_GROUP && only.server == self.own
            || group == CATALOG_GROUP && self.peers.transport().is_none()
    }

    /// Makes one membership change and waits for it. Whether it was made.
    fn change_members(&self, group: GroupId, change: MemberChange) -> bool {
        let (sender, receiver) = task::channel();
        {
            // The members of a sealed group do not change: each of them needs the sealed log.
            let _one_at_a_time = self.hold_changes();
            if self.local.shard_of(group).is_some_and(|shard| shard.is_sealed_or_sealing()) {
                return false;
            }
            self.log.change_members(group, change, Box::new(move |done| drop(sender.send(done))));
        }
        let outcome = receiver.recv_timeout(CHANGE_TIMEOUT);
        match &outcome {
            Some(Ok(_)) => self.log_change(group, change),
            Some(Err(error)) => tracing::debug!("group {group}: {change:?}: {error}"),
            None => tracing::debug!("group {group}: {change:?} is not committed after {CHANGE_TIMEOUT:?}"),
        }
        matches!(outcome, Some(Ok(_)))
    }

    fn log_change(&self, group: GroupId, change: MemberChange) {
        let (MemberChange::AddLearner(peer) | MemberChange::Promote(peer) | MemberChange::Remove(peer)) =
            change;
        let text = display_names::change(&self.catalog.shown(), group, change, &self.name_of(peer));
        tracing::info!("{}", display_names::sentence(&text));
    }

    /// The display name of a replica's server.
    fn name_of(&self, peer: PeerId) -> String {
        display_names::replica(&self.catalog.shown(), peer, self.transport.server_of(peer))
    }

    /// Gives the server of a removed replica a new one. A leader with an older catalog removed the replica from its group,
    /// which cannot be undone, but the newest catalog still names it.
    pub(crate) fn replace_removed(
        &self,
        table: TableId,
        group: GroupId,
        removed: PeerId,
    ) -> Result<(), AdminError> {
        // Does not wait: the change of the catalog that this node is making may itself wait for this reconciliation.
        let Some(_one_at_a_time) = self.catalog.try_lock_changes() else { return Ok(()) };
        self.catalog.change_locked(|catalog, draft| {
            let Some(table) = catalog.table_by_id(table) else { return Ok(()) };
            let mut config = table.config.clone();
            let shards = config.shards.iter_mut().filter(|shard| shard.group == group);
            for replica in shards.flat_map(|shard| &mut shard.replicas).filter(|known| known.peer == removed)
            {
                replica.peer = self.ids.new_peer();
            }
            if config != table.config {
                draft.put(CatalogRow::Table(config));
            }
            Ok(())
        })
    }
}
