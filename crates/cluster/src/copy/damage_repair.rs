//! A replica with damaged rows or index entries gets them anew from another replica.
//!
//! The engine lists the files and rows in which it has met damage. A file is of no use any more when the rows of every shard that
//! may have rows in it were replaced; the engine then removes it. docs/decisions/0065-damaged-replicas-are-replaced.md.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::{Batch, DamagedFiles, EngineError, Space};
use io::task;
use log::{GroupId, Log, LogError};
use shard::{PresentRows, Replicas};
use storage::TableId;

use super::damaged_shard::ShardKeys;
use super::service::Copies;
use crate::catalog::{CatalogClient, Handles, display_names};
use crate::config::{CATALOG_GROUP, CATALOG_TABLE, ServerId, ShardConfig};
use crate::locks::BriefMutex;
use crate::routing::{Leadership, LocalReplica, LocalReplicas};
use crate::rpc::Peers;

/// How often the list of damage is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a shard is not repaired again, and no file is tried to be removed again.
const REPAIR_INTERVAL: Duration = Duration::from_secs(300);
/// When a repair that could not be completed is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// How long another replica may take to become the leader.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A step of a repair.
enum Work {
    /// Replace the rows of one shard.
    Rows { group: GroupId, why: String },
    /// Replace the index entries of all shards of a table, which share the indexes' keys.
    Indexes { groups: Vec<GroupId>, table: TableId, why: String },
    /// Remove a file whose shards were all repaired.
    Remove { file: String },
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
enum RepairError {
    #[error("no other replica is known to have all rows")]
    NoSource,
    #[error("this server still leads the shard")]
    Leads,
    #[error("the copy was not completed")]
    Incomplete,
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Log(#[from] LogError),
}

#[derive(Default)]
struct RepairState {
    is_running: bool,
    looked_at: Option<Instant>,
    /// When a shard or a file may be worked on again.
    not_before: BTreeMap<GroupId, Instant>,
    files_not_before: BTreeMap<String, Instant>,
    /// The shards that were repaired since a file was listed.
    repaired: BTreeMap<String, BTreeSet<GroupId>>,
    /// Shards for which a line in the log says that they cannot be repaired.
    reported: BTreeSet<GroupId>,
}

/// Repairs the replicas of this node, one at a time.
pub(crate) struct DamageRepair {
    own: ServerId,
    peers: Arc<Peers>,
    leadership: Arc<Leadership>,
    log: Arc<dyn Log>,
    replicas: Arc<Replicas>,
    local: Arc<LocalReplicas>,
    catalog: Arc<CatalogClient>,
    copies: Arc<Copies>,
    stopping: Arc<AtomicBool>,
    state: BriefMutex<RepairState>,
}

impl DamageRepair {
    pub(crate) fn new(handles: &Handles, copies: Arc<Copies>, stopping: Arc<AtomicBool>) -> DamageRepair {
        DamageRepair {
            own: handles.own,
            peers: handles.peers.clone(),
            leadership: handles.leadership.clone(),
            log: handles.log.clone(),
            replicas: handles.replicas.clone(),
            local: handles.local.clone(),
            catalog: handles.catalog.clone(),
            copies,
            stopping,
            state: BriefMutex::default(),
        }
    }

    /// Begins the next step of a repair on a separate thread, if there is damage and no step is running.
    pub(crate) fn step(self: &Arc<Self>) {
        let Some(damage) = self.replicas.engine().damage().filter(|damage| !damage.is_empty()) else {
            return;
        };
        let now = task::now();
        {
            let mut state = self.state.lock();
            if state.is_running || state.looked_at.is_some_and(|at| now < at + LOOK_INTERVAL) {
                return;
            }
            (state.is_running, state.looked_at) = (true, Some(now));
        }
        let repair = Arc::clone(self);
        let run = move || {
            if let Some(work) = repair.next(&damage) {
                repair.carry_out(work, &damage);
            }
            repair.state.lock().is_running = false;
        };
        if let Err(error) = task::spawn("damage-repair", run) {
            tracing::error!("could not start a thread for the repair of damaged rows: {error}");
            self.state.lock().is_running = false;
        }
    }

    /// The shards that are open here; `None` if the catalog places one here that is not.
    fn shards(&self) -> Option<Vec<ShardKeys>> {
        let catalog = self.catalog.shown();
        let open = self.local.lock();
        for table in catalog.tables() {
            let is_own = |shard: &&ShardConfig| {
                shard.replicas.iter().chain(&shard.leaving).any(|replica| replica.server == self.own)
            };
            if table.config.shards.iter().filter(is_own).any(|shard| !open.contains_key(&shard.group)) {
                return None;
            }
        }
        let shard = |(group, open): (&GroupId, &LocalReplica)| ShardKeys {
            group: *group,
            table: open.table,
            shard: Arc::clone(&open.shard),
        };
        let mut shards: Vec<ShardKeys> = open.iter().map(shard).collect();
        drop(open);
        let table = TableId::from_uuid(CATALOG_TABLE);
        let catalog = self.local.shard_of(CATALOG_GROUP)?;
        shards.push(ShardKeys { group: CATALOG_GROUP, table, shard: catalog });
        Some(shards)
    }

    fn next(&self, damage: &DamagedFiles) -> Option<Work> {
        let (shards, now) = (self.shards()?, task::now());
        let (files, rows) = (damage.list(), self.damaged_rows(damage));
        let mut state = self.state.lock();
        state.repaired.retain(|name, _| files.iter().any(|file| file.name == *name));
        let may_begin =
            |state: &RepairState, group: GroupId| state.not_before.get(&group).is_none_or(|at| now >= *at);
        let may_remove =
            |state: &RepairState, name: &str| state.files_not_before.get(name).is_none_or(|at| now >= *at);
        for file in files.iter().filter(|file| !file.is_discarded) {
            let inside: Vec<&ShardKeys> = shards.iter().filter(|shard| shard.may_be_in(file)).collect();
            let done = state.repaired.get(&file.name);
            let is_left = |shard: &&&ShardKeys| done.is_none_or(|done| !done.contains(&shard.group));
            let why = || format!("the file {} is damaged", file.name);
            let left = inside.iter().filter(is_left).count();
            let next = inside.iter().filter(is_left).find(|shard| may_begin(&state, shard.group));
            match next {
                Some(shard) if file.space == Some(Space::Index) => {
                    let same = inside.iter().filter(|other| other.table == shard.table);
                    let groups = same.map(|other| other.group).collect();
                    return Some(Work::Indexes { groups, table: shard.table, why: why() });
                }
                Some(shard) => return Some(Work::Rows { group: shard.group, why: why() }),
                None if left == 0 && !inside.is_empty() && may_remove(&state, &file.name) => {
                    return Some(Work::Remove { file: file.name.clone() });
                }
                None => {}
            }
        }
        let (key, why) = rows.into_iter().find(|(key, _)| {
            let shard = shards.iter().find(|shard| shard.has_row(key));
            shard.is_some_and(|shard| may_begin(&state, shard.group))
        })?;
        let shard = shards.iter().find(|shard| shard.has_row(&key))?;
        Some(Work::Rows { group: shard.group, why })
    }

    /// The listed rows that are still damaged. The others were replaced or deleted since, and leave the list.
    fn damaged_rows(&self, damage: &DamagedFiles) -> Vec<(Vec<u8>, String)> {
        let mut rows = damage.rows();
        rows.retain(|(key, _)| {
            let row = self.replicas.engine().get(Space::Rows, key);
            let is_whole = row.is_ok_and(|row| row.is_none_or(|row| datum::row::decode(row).is_ok()));
            if is_whole {
                damage.forget_row(key);
            }
            !is_whole
        });
        rows
    }

    fn carry_out(&self, work: Work, damage: &DamagedFiles) {
        // A file that is listed later may have rows of the copy.
        let (files, rows) = (damage.list(), damage.rows());
        let (groups, result) = match &work {
            Work::Remove { file } => {
                if let Err(error) = self.remove(file, damage) {
                    tracing::warn!("could not remove the damaged file {file}, retrying: {error}");
                }
                let again = task::now() + REPAIR_INTERVAL;
                self.state.lock().files_not_before.insert(file.clone(), again);
                return;
            }
            Work::Rows { group, why } => (vec![*group], self.replace_rows(*group, why)),
            Work::Indexes { groups, table, why } => {
                (groups.clone(), self.replace_indexes(groups, *table, why))
            }
        };
        let is_index = matches!(work, Work::Indexes { .. });
        let space = if is_index { Space::Index } else { Space::Rows };
        let shards = self.shards().unwrap_or_default();
        let names: Vec<String> = groups.iter().map(|group| self.name(*group)).collect();
        let mut state = self.state.lock();
        match result {
            Ok(()) => {
                for group in groups {
                    state.reported.remove(&group);
                    state.not_before.insert(group, task::now() + REPAIR_INTERVAL);
                    let Some(shard) = shards.iter().find(|shard| shard.group == group) else { continue };
                    for file in files.iter().filter(|file| file.space == Some(space) && shard.may_be_in(file))
                    {
                        state.repaired.entry(file.name.clone()).or_default().insert(group);
                    }
                    let rows = rows.iter().filter(|(key, _)| !is_index && shard.has_row(key));
                    rows.for_each(|(key, _)| damage.forget_row(key));
                }
            }
            Err(error) => {
                let is_new = groups.iter().any(|group| state.reported.insert(*group));
                let again = task::now() + RETRY_INTERVAL;
                groups.iter().for_each(|group| _ = state.not_before.insert(*group, again));
                drop(state);
                if is_new {
                    let names = names.join(", ");
                    tracing::warn!("damaged rows of {names} on this server cannot be replaced now: {error}");
                }
            }
        }
    }

    fn name(&self, group: GroupId) -> String {
        display_names::group(&self.catalog.shown(), group)
    }

    /// Returns once another server is known to lead the group.
    fn leave_leadership(&self, group: GroupId) -> Result<(), RepairError> {
        let deadline = task::now() + TRANSFER_TIMEOUT;
        loop {
            let status = self.log.group_status(group)?;
            let leader = self.leadership.known_leader(group).leader();
            let is_other = |server: &ServerId| *server != self.own && self.peers.is_connected(*server);
            if leader.as_ref().is_some_and(is_other) {
                return Ok(());
            }
            let successors = status.peers.iter().filter(|peer| peer.active && !peer.needs_rows);
            let successors = successors.filter(|peer| status.members.voters.contains(&peer.peer));
            match successors.max_by_key(|peer| peer.matched) {
                Some(successor) => self.log.transfer(group, successor.peer),
                None if status.members.voters == [status.own] => return Err(RepairError::NoSource),
                None => {}
            }
            if task::now() > deadline || self.stopping.load(Ordering::Acquire) {
                let leads = leader == Some(self.own);
                return Err(if leads { RepairError::Leads } else { RepairError::NoSource });
            }
            task::sleep(POLL_INTERVAL);
        }
    }

    fn replace_rows(&self, group: GroupId, why: &str) -> Result<(), RepairError> {
        self.leave_leadership(group)?;
        tracing::warn!(
            "the rows of {} on this server are replaced by a copy from another: {why}",
            self.name(group)
        );
        self.receive(&[group], PresentRows::Replaced)
    }

    fn replace_indexes(&self, groups: &[GroupId], table: TableId, why: &str) -> Result<(), RepairError> {
        for group in groups {
            self.leave_leadership(*group)?;
        }
        let names: Vec<String> = groups.iter().map(|group| self.name(*group)).collect();
        tracing::warn!("the index entries of {} on this server are made anew: {why}", names.join(", "));
        let engine = self.replicas.engine();
        let cleared = self.copies.without_copies(groups, || {
            for group in groups {
                self.log.begin_restore(*group)?;
                self.replicas.mark_recovering(*group);
            }
            let mut batch = Batch::new();
            storage::drop_index_entries(&mut batch, table);
            engine.write(batch)?;
            Ok(engine.flush()?)
        });
        // Also after an error: some of the shards may have no valid rows.
        let received = self.receive(groups, PresentRows::Compared);
        cleared.unwrap_or(Err(RepairError::Incomplete)).and(received)
    }

    /// Receives copies of the groups, and waits for them. Fails if a copy was under way before, or kept rows that it should not.
    fn receive(&self, groups: &[GroupId], present: PresentRows) -> Result<(), RepairError> {
        let begun = task::now();
        groups.iter().for_each(|group| self.copies.begin(*group));
        while groups.iter().any(|group| self.copies.is_receiving(*group)) {
            if self.stopping.load(Ordering::Acquire) {
                return Err(RepairError::Incomplete);
            }
            task::sleep(POLL_INTERVAL);
        }
        let is_whole = |group: &GroupId| self.copies.completed_since(*group, begun, present);
        for group in groups.iter().filter(|group| is_whole(group)) {
            tracing::info!("the rows of {} on this server were replaced", self.name(*group));
        }
        if groups.iter().all(is_whole) { Ok(()) } else { Err(RepairError::Incomplete) }
    }

    /// Removes a file of which nothing is needed any more.
    fn remove(&self, file: &str, damage: &DamagedFiles) -> Result<(), EngineError> {
        self.replicas.engine().discard_file(file)?;
        match damage.list().iter().find(|listed| listed.name == file) {
            None => tracing::info!("the damaged file {file} was removed"),
            Some(listed) if listed.is_discarded => tracing::warn!(
                "the damaged file {file} is not needed any more; it is removed when this server starts again"
            ),
            Some(_) => tracing::warn!("the damaged file {file} is still in use"),
        }
        Ok(())
    }
}
