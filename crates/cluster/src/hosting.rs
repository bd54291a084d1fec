//! The replicas on this node: opened when the catalog places them here, discarded when it no longer
//! does.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datum::KeyRange;
use engine::Batch;
use log::{GroupId, InitialConfig, LogError, PeerId};
use shard::{Predecessor, Shard, clear_rows};
use storage::{Changes, Direction, RowChange, TableId};

use crate::hosted::Hosted;
use crate::last_word::Parting;
use crate::most_complete::everyone;
use crate::node::{CATALOG_GROUP, CATALOG_TABLE, Core};
use crate::pending::Departed;
use crate::readers::readers_of;
use crate::router::shard_range;
use crate::succession::Opening;
use crate::{AdminError, Catalog, ReplicaConfig, ShardConfig, ShardHandle, TableConfig};

/// Rows deleted in one batch.
const DELETE_ROWS: usize = 1000;

impl Core {
    /// Handles for the shards of a table, with this node's replicas open.
    ///
    /// A table written before there were several servers has its replicas, which it does not name,
    /// on this one: they are added to `config`.
    pub(crate) fn open_shards(&self, config: &mut TableConfig) -> Result<Vec<ShardHandle>, AdminError> {
        self.open_sealed(config)?;
        let openings = (0..config.shards.len()).map(|at| self.opening(config, at));
        let openings = openings.collect::<Result<Vec<Opening>, _>>()?;
        let mut handles = Vec::with_capacity(config.shards.len());
        let readers = readers_of(self.identity.server, &config.shards);
        let (mut is_put_off, mut overrun) = (false, Vec::new());
        for (i, opening) in openings.into_iter().enumerate() {
            let range = shard_range(&config.shards, i);
            let near = match opening {
                opening if !self.make_way(config, i, &opening, &mut overrun)? => {
                    is_put_off = true;
                    None
                }
                opening => self.open_replica(config.id, &mut config.shards[i], &range, &opening)?,
            };
            let shard = &config.shards[i];
            is_put_off |= shard.replica_on(self.identity.server).is_some() && self.is_departing(shard.group);
            if let Some(near) = &near {
                near.set_indexes(config.indexes.defs());
                near.set_acks(config.write_acks.acks());
            }
            let places = shard.replicas.iter().chain(&shard.leaving);
            self.post.learn(places.map(|replica| (replica.peer, replica.server)));
            let lead = self.post.lead(shard.group);
            self.note_leader(&lead, shard, near.as_ref());
            let from = (self.identity.server, readers[i]);
            handles.push(ShardHandle::new(from, shard, config.id, range, near, lead));
        }
        // Whoever still reads there looks for the rows again.
        overrun.into_iter().for_each(|group| self.replicas.mark_recovering(group));
        self.note_put_off(config.id, is_put_off);
        Ok(handles)
    }

    fn note_leader(&self, lead: &crate::KnownLeader, shard: &ShardConfig, near: Option<&Arc<Shard>>) {
        if near.is_some_and(|near| near.is_leader()) {
            return lead.hear(Some(self.identity.server));
        }
        // Nobody here hears of elections, or not yet: a guess, to be corrected by whoever is asked.
        let is_new = near.is_none_or(|near| near.applied() == log::Lsn(0));
        if lead.leader().is_none() && is_new {
            lead.find(Some(shard.first_to_stand().unwrap_or(shard.primary)));
        }
    }

    pub(crate) fn open_replica(
        &self,
        table: TableId,
        config: &mut ShardConfig,
        range: &KeyRange,
        opening: &Opening,
    ) -> Result<Option<Arc<Shard>>, AdminError> {
        let server = self.identity.server;
        let is_old = everyone(config).next().is_none();
        let named = config.replica_on(server).map(|own| own.peer);
        let birth = match named {
            None if is_old => InitialConfig::Single,
            None => return Ok(None),
            Some(own) => birth_of(config, own, opening),
        };
        if let Some(named) = named
            && self.past_is_known.load(Ordering::Acquire)
        {
            self.discard_earlier(table, config.group, named)?;
        }
        let group = config.group;
        if self.is_departing(group) {
            return Ok(None);
        }
        if let Some(open) = io::task::lock(&self.hosted).get_mut(&group) {
            open.is_named |= named.is_none_or(|named| named == open.own);
            name_old(config, server, open.own);
            return Ok(Some(Arc::clone(&open.shard)));
        }
        // Opened outside of the lock, which everybody takes: the log is replayed, and rows are counted where they
        // were others' before. Whoever opens replicas has `publishing`, so nobody opens this one meanwhile.
        let Some(shard) = self.open_as(table, group, range, birth, opening)? else { return Ok(None) };
        let own = self.log.group_status(group)?.own;
        name_old(config, server, own);
        self.stand_first(config, &shard);
        let (gate, is_named) = (Arc::default(), named.is_none_or(|named| named == own));
        let (near, range) = (Arc::clone(&shard), range.clone());
        let open = Hosted { shard: near, table, range, own, is_named, gate };
        io::task::lock(&self.hosted).insert(group, open);
        io::task::lock(&self.pending).heirs.remove(&group);
        Ok(Some(shard))
    }

    /// Opens a replica as the one that it was before, or as `birth` says; `None` if it was removed from the group
    /// before the catalog here says so.
    fn open_as(
        &self,
        table: TableId,
        group: GroupId,
        range: &KeyRange,
        birth: InitialConfig,
        opening: &Opening,
    ) -> Result<Option<Arc<Shard>>, AdminError> {
        let forerunners: &[Predecessor] = match opening {
            Opening::Now(forerunners) => forerunners,
            Opening::Empty | Opening::Later => &[],
        };
        let open = |birth| {
            let (log, range) = (self.log.clone(), range.clone());
            Shard::open_after(&self.replicas, log, table, group, range, birth, forerunners)
        };
        let opened = match open(birth.clone()) {
            Err(shard::OpenError::Log(LogError::OtherPeer { .. })) => {
                if self.past_is_known.load(Ordering::Acquire) {
                    if !self.leave_as(table, group)? {
                        return Ok(None);
                    }
                    open(birth)
                } else {
                    // Which of the two is the later one is known when the catalog is: until then it goes on
                    // as who it was, which harms nobody.
                    open(InitialConfig::Single)
                }
            }
            opened => opened,
        };
        match opened {
            Ok(shard) => {
                tracing::debug!(
                    "group {group} of {range:?} is open after {forerunners:?}: {} rows, applied {:?}",
                    shard.count(),
                    shard.applied()
                );
                Ok(Some(shard))
            }
            Err(shard::OpenError::Log(error @ (LogError::Tombstone(_) | LogError::Removed { .. }))) => {
                if let LogError::Removed { peer, .. } = error {
                    self.note_gone(table, group, peer);
                }
                self.leave_as(table, group)?;
                self.owe_clearing(table);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Discards the replicas that `catalog` no longer places here. One that no catalog has named yet may be
    /// named by the next one, while there are some that this node has acted on before it was started.
    pub(crate) fn discard_strays(&self, catalog: &Catalog) -> Result<(), AdminError> {
        let placed = |table: TableId, group: GroupId| {
            let (config, server) = (&catalog.table_by_id(table)?.config, self.identity.server);
            if let Some(old) = config.lineage.sealed.iter().find(|old| old.group == group) {
                // Those who wait need it to go on; the others help them to a majority.
                return Some(old.replica_on(server).is_some());
            }
            let shard = config.shards.iter().find(|shard| shard.group == group)?;
            Some(shard.replica_on(server).is_some())
        };
        let strays: Vec<(GroupId, TableId, bool)> = {
            let hosted = io::task::lock(&self.hosted);
            let knows_all = self.past_is_known.load(Ordering::Acquire);
            let strays = hosted.iter().filter_map(|(group, open)| match placed(open.table, *group) {
                Some(true) => None,
                _ if !open.is_named && !knows_all => None,
                known => Some((*group, open.table, known.is_some())),
            });
            strays.collect()
        };
        #[cfg(feature = "mutants")]
        if log::mutant::is_active(log::mutant::Mutant::ServeRemoved) {
            return Ok(());
        }
        self.keep_rows_of(&strays, catalog)?;
        for (group, table, lives_elsewhere) in strays {
            self.discard(catalog, table, group, lives_elsewhere)?;
        }
        Ok(())
    }

    /// Closes a replica for good and removes its rows, unless another shard here has them now.
    pub(crate) fn discard(
        &self,
        catalog: &Catalog,
        table: TableId,
        group: GroupId,
        lives_elsewhere: bool,
    ) -> Result<(), AdminError> {
        let open = io::task::lock(&self.hosted).remove(&group);
        if let Some(open) = &open {
            open.gate.shut();
            open.shard.retire();
            // Whoever still has a handle of before looks for the rows again.
            self.replicas.mark_recovering(group);
        }
        let is_written =
            self.end_in_log(group, if lives_elsewhere { Parting::Leaves } else { Parting::Closes })?;
        self.replicas.forget(group);
        self.post.forget(group);
        if !is_written {
            self.note_departed(group, Departed { table, open });
            return Ok(());
        }
        self.forget_rows(catalog, table, group, open.as_ref())
    }

    /// Forgets a replica that has gone, and removes the rows of one that was `open`.
    pub(crate) fn forget_rows(
        &self,
        catalog: &Catalog,
        table: TableId,
        group: GroupId,
        open: Option<&Hosted>,
    ) -> Result<(), AdminError> {
        let mut batch = Batch::new();
        storage::forget_group(&mut batch, table, group);
        if catalog.table_by_id(table).is_none() {
            storage::drop_table(&mut batch, table);
            self.replicas.forget_table(table);
        }
        self.engine().write(batch)?;
        match open {
            // What an old catalog does not place here may be placed here by a later one: swept when that is known.
            Some(_) if !self.past_is_shown.load(Ordering::Acquire) => Ok(()),
            Some(open) => {
                self.each_stranger(catalog, table, &open.range, |_, part| Ok(clear_rows(&open.shard, part)?))
            }
            None => Ok(()),
        }
    }

    /// Removes the rows of a table that belong to shards which are not placed here.
    pub(crate) fn clear_strangers(&self, catalog: &Catalog, table: TableId) -> Result<(), AdminError> {
        let clear = |group, part: &KeyRange| self.delete_rows(table, group, part);
        self.each_stranger(catalog, table, &KeyRange::all(), clear)
    }

    /// Calls `each` with the parts of `range` that belong to shards which are not placed here.
    fn each_stranger(
        &self,
        catalog: &Catalog,
        table: TableId,
        range: &KeyRange,
        mut each: impl FnMut(GroupId, &KeyRange) -> Result<(), AdminError>,
    ) -> Result<(), AdminError> {
        let Some(handle) = catalog.table_by_id(table) else { return Ok(()) };
        for (i, shard) in handle.config.shards.iter().enumerate() {
            let is_own = |replica: &ReplicaConfig| replica.server == self.identity.server;
            // Where groups before are still needed, whoever leaves may yet have to begin.
            let begins = || !handle.config.lineage.sealed.is_empty();
            let is_open = || io::task::lock(&self.hosted).contains_key(&shard.group);
            let here = shard.replicas.iter().any(is_own)
                || (shard.leaving.iter().any(is_own) && (begins() || is_open()));
            let part = shard_range(&handle.config.shards, i).intersect(range);
            if !here && !part.is_empty() {
                each(shard.group, &part)?;
            }
        }
        Ok(())
    }

    /// Removes all rows of a range, a thousand at a time.
    fn delete_rows(&self, table: TableId, group: GroupId, range: &KeyRange) -> Result<(), AdminError> {
        let store = self.replicas.store();
        let part = storage::ShardRange { range: range.clone(), group };
        let snapshot = storage::Table::new(store.clone(), table).snapshot(part)?;
        let mut scan = snapshot.scan(range, Direction::Ascending).to_the_end();
        let mut changes = Changes::default();
        let mut pending = 0;
        while let Some(batch) = scan.next_batch()? {
            for i in 0..batch.len() {
                changes.add(table, &RowChange { key: batch.key(i), row: None, existed: true });
                pending += 1;
                if pending >= DELETE_ROWS {
                    store.write(std::mem::take(&mut changes))?;
                    pending = 0;
                }
            }
        }
        Ok(store.write(changes)?)
    }

    /// Removes what a crash left of replicas, tables and indexes that are not here any more.
    ///
    /// Put off while the catalog shown here may be older than what this node has acted on: what a later one
    /// has placed here would be taken for left behind. The node does it itself then, as soon as it knows.
    pub fn sweep_left_behind(&self) -> Result<(), AdminError> {
        let _one_at_a_time = io::task::lock(&self.publishing);
        // Whoever still needs rows of shards before keeps them until then.
        let is_divided = |table: &&Arc<crate::TableHandle>| !table.config.lineage.sealed.is_empty();
        if !self.past_is_shown.load(Ordering::Acquire) || self.catalog().tables().iter().any(is_divided) {
            return Ok(());
        }
        if !self.sweep()? {
            return Ok(());
        }
        self.sweep_indexes()?;
        self.is_swept.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether all of it was removed: on a full disk that has to wait.
    fn sweep(&self) -> Result<bool, AdminError> {
        let catalog = self.catalog();
        for group in storage::groups_present(&self.engine().snapshot()?)? {
            if group != CATALOG_GROUP
                && !io::task::lock(&self.hosted).contains_key(&group)
                && !self.close_unopened(group)?
            {
                return Ok(false);
            }
        }
        let mut batch = Batch::new();
        for table in storage::tables_present(&self.engine().snapshot()?)? {
            if table.uuid() == CATALOG_TABLE {
                continue;
            }
            match catalog.table_by_id(table) {
                Some(_) => self.clear_strangers(&catalog, table)?,
                None => storage::drop_table(&mut batch, table),
            }
        }
        self.engine().write(batch)?;
        Ok(true)
    }

    /// Takes leave of a group that the engine remembers and the catalog does not place here; whether that is written.
    ///
    /// It is not opened for that: of whom the log knows nothing, that would make a group of one, which leads.
    fn close_unopened(&self, group: GroupId) -> Result<bool, AdminError> {
        if !self.end_in_log(group, Parting::Leaves)? {
            return Ok(false);
        }
        let mut batch = Batch::new();
        storage::forget_group(&mut batch, TableId::from_uuid(uuid::Uuid::nil()), group);
        self.engine().write(batch)?;
        Ok(true)
    }
}

/// How replica `own` of a shard begins that is new here.
fn birth_of(config: &ShardConfig, own: PeerId, opening: &Opening) -> InitialConfig {
    let voters = || config.founders.clone();
    match opening {
        _ if !config.founders.contains(&own) => InitialConfig::Joining { own },
        Opening::Empty => InitialConfig::BootstrapEmpty { own, voters: voters() },
        Opening::Now(_) | Opening::Later => InitialConfig::Bootstrap { own, voters: voters() },
    }
}

fn name_old(config: &mut ShardConfig, server: crate::ServerId, own: PeerId) {
    if config.replicas.is_empty() {
        config.replicas = vec![ReplicaConfig { server, peer: own, voting: true }];
        config.founders = vec![own];
        config.primary = server;
    }
}
