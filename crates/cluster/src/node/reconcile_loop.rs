//! The node's reconciliation loop: reconciles each group that this node leads with the catalog, one change at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use io::task;
use log::GroupId;
use shard::Shard;

use super::event_loop::{BUSY_INTERVAL, IDLE_INTERVAL};
use super::replica_host::ReplicaHost;
use crate::catalog::row::CatalogRow;
use crate::catalog::{Catalog, CatalogClient, Servers};
use crate::config::{CATALOG_GROUP, ServerConfig, ServerId, ShardConfig, TableConfig};
use crate::copy::{Copies, DamageRepair};
use crate::error::AdminError;
use crate::feeds::Feeds;
use crate::membership::{DesiredMembers, Membership, Probes, WaitingLog};
use crate::repair::ServerRemoval;
use crate::reshard::{HandoverEnd, ReshardAges, Resharder};
use crate::rpc::Peers;

/// How long a group that needed no change is not checked again.
const SETTLED_RECHECK_INTERVAL: Duration = Duration::from_secs(10);
/// How long a replica must have led before it transfers leadership to the preferred server.
const LEADER_SETTLE_DELAY: Duration = Duration::from_secs(3);
/// How long a proxy may be disconnected before it is deleted from the catalog.
const PROXY_TIMEOUT: Duration = Duration::from_secs(60);

/// The reconciliation loop, and the owners that it calls.
pub(super) struct ReconcileLoop {
    pub(super) peers: Arc<Peers>,
    pub(super) catalog: Arc<CatalogClient>,
    pub(super) membership: Arc<Membership>,
    pub(super) resharder: Arc<Resharder>,
    pub(super) handovers: Arc<HandoverEnd>,
    pub(super) removal: Arc<ServerRemoval>,
    pub(super) servers: Arc<Servers>,
    pub(super) host: Arc<ReplicaHost>,
    pub(super) copies: Arc<Copies>,
    pub(super) damage_repair: Arc<DamageRepair>,
    pub(super) feeds: Arc<Feeds>,
    pub(super) stopping: Arc<AtomicBool>,
}

/// The state that is kept from pass to pass.
#[derive(Default)]
struct ReconcileState {
    /// The groups that needed no change, with the version of the catalog and the time of the check.
    settled: HashMap<GroupId, (u64, Instant)>,
    led_since: HashMap<GroupId, Instant>,
    reshards: ReshardAges,
    /// The proxies that are disconnected, and since when.
    proxies_missing: HashMap<ServerId, Instant>,
    waiting: WaitingLog,
}

impl ReconcileState {
    fn is_settled(&self, group: GroupId, version: u64) -> bool {
        let settled = self.settled.get(&group);
        settled.is_some_and(|(at, when)| *at == version && task::now() - *when < SETTLED_RECHECK_INTERVAL)
    }

    /// Forgets a group that this node does not lead.
    fn forget(&mut self, group: GroupId) {
        self.led_since.remove(&group);
        self.reshards.forget(group);
        self.waiting.forget(group);
    }
}

/// A group that this node leads and that is reconciled in this pass.
struct Due<'a> {
    desired: DesiredMembers,
    /// Its table and its shard; `None` for the catalog.
    shard: Option<(&'a TableConfig, &'a ShardConfig)>,
    /// This node has led the group for more than [`LEADER_SETTLE_DELAY`].
    has_settled: bool,
}

impl ReconcileLoop {
    /// Runs until the node stops.
    pub(super) fn run(&self) {
        let mut state = ReconcileState::default();
        while !self.stopping.load(Ordering::Acquire) {
            self.reconcile(&mut state);
            self.copies.drop_unused();
            self.damage_repair.step();
            self.feeds.drop_unused();
            task::park_timeout(if self.handovers.is_awaited() { BUSY_INTERVAL } else { IDLE_INTERVAL });
        }
    }

    /// Makes one change in each group that this node leads and that needs one.
    fn reconcile(&self, state: &mut ReconcileState) {
        let catalog = self.catalog.shown();
        self.handovers.finish(&catalog);
        self.host.replace_removed(&catalog);
        let version = catalog.version;
        let mut due = Vec::new();
        // Not with a version older than the one that this node leads: a server that was just admitted would look unwanted.
        if self.catalog.version_as_leader() == Some(version) {
            let desired = DesiredMembers {
                group: CATALOG_GROUP,
                table: None,
                version,
                replicas: catalog.servers().into_iter().map(|server| server.catalog).collect(),
                away: Vec::new(),
                primary: None,
                is_leaving: false,
            };
            due.push(Due { desired, shard: None, has_settled: false });
            self.forget_proxies(&catalog, &mut state.proxies_missing);
        }
        for table in catalog.tables() {
            self.resharder.seal_repaired(&table.config);
            let shards = table.config.shards.iter().zip(table.shards());
            due.extend(shards.filter_map(|(shard, handle)| {
                self.due(&catalog, &table.config, shard, handle.local(), state)
            }));
        }
        let mut probes = Probes::default();
        for nth in 0..due.len() {
            self.reconcile_first(&due[nth..], &mut probes, state);
        }
    }

    /// The desired members of a shard, if this node leads it and it may need a change.
    fn due<'a>(
        &self,
        catalog: &Catalog,
        table: &'a TableConfig,
        shard: &'a ShardConfig,
        local: Option<&Arc<Shard>>,
        state: &mut ReconcileState,
    ) -> Option<Due<'a>> {
        let Some(led) = local.filter(|local| local.leads()) else {
            state.forget(shard.group);
            return None;
        };
        if led.seal_state().is_sealed() {
            self.resharder.reconcile_sealed(table.id, shard.group, &mut state.reshards);
            return None;
        }
        led.abandon_seal_of_earlier_term();
        self.resharder.reconcile_open(table, shard, &mut state.reshards);
        self.removal.reconcile_removed(catalog, table.id, shard);
        let since = *state.led_since.entry(shard.group).or_insert_with(task::now);
        if state.is_settled(shard.group, catalog.version) {
            return None;
        }
        let has_settled = task::now() - since > LEADER_SETTLE_DELAY;
        let primary = shard.replicas.iter().find(|replica| replica.server == shard.primary);
        let away = shard.replicas.iter().filter(|replica| !self.peers.is_connected(replica.server));
        let desired = DesiredMembers {
            group: shard.group,
            table: Some(table.id),
            version: catalog.version,
            replicas: shard.replicas.clone(),
            away: away.map(|replica| replica.peer).collect(),
            // A server that has just transferred leadership because it stops must not get it back at once.
            primary: primary.map(|replica| replica.peer).filter(|_| has_settled),
            is_leaving: !shard.leaving.is_empty(),
        };
        Some(Due { desired, shard: Some((table, shard)), has_settled })
    }

    /// Makes one change in the first group of `due`.
    fn reconcile_first(&self, due: &[Due<'_>], probes: &mut Probes, state: &mut ReconcileState) {
        let [Due { desired, shard, has_settled }, others @ ..] = due else { return };
        let others = others.iter().map(|due| &due.desired);
        let is_done = self.membership.reconcile(desired, others, probes, &mut state.waiting);
        let Some((table, shard)) = shard.filter(|_| is_done) else { return };
        if !desired.is_leaving && *has_settled {
            state.settled.insert(shard.group, (desired.version, task::now()));
        } else if desired.is_leaving
            && let Err(error) = self.forget_leaving(table, shard)
        {
            tracing::warn!("could not delete removed replicas from the catalog, retrying: {error}");
        }
    }

    /// Deletes replicas that have left their group from the catalog.
    ///
    /// Only if the row of the shard has not changed since the group was reconciled with it: replicas that a newer row
    /// names as leaving may be the only ones that the group has.
    fn forget_leaving(&self, table: &TableConfig, left: &ShardConfig) -> Result<(), AdminError> {
        let id = table.id;
        self.catalog.change(|catalog, draft| {
            let Some(table) = catalog.table_by_id(id) else { return Ok(()) };
            let mut config = table.config.clone();
            if let Some(shard) = config.shards.iter_mut().find(|shard| *shard == left) {
                shard.leaving.clear();
                draft.put(CatalogRow::Table(config));
            }
            Ok(())
        })
    }

    /// Deletes proxies from the catalog that have been disconnected for [`PROXY_TIMEOUT`]: they stopped without leaving.
    fn forget_proxies(&self, catalog: &Catalog, missing: &mut HashMap<ServerId, Instant>) {
        let is_away = |server: &&ServerConfig| server.is_proxy && !self.peers.is_connected(server.id);
        let away: Vec<ServerId> =
            catalog.servers().into_iter().filter(is_away).map(|server| server.id).collect();
        missing.retain(|server, _| away.contains(server));
        for server in away {
            let since = *missing.entry(server).or_insert_with(task::now);
            if task::now() - since > PROXY_TIMEOUT
                && let Err(error) = self.servers.forget_proxy(server)
            {
                tracing::warn!("could not delete proxy {server} from the catalog, retrying: {error}");
            }
        }
    }
}
