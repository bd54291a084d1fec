//! A server may hold a replica, lose it and be given another of the same group, while it is away or only
//! slow to hear of it. The two are different members of the group: what the earlier one had
//! is discarded, and the later one begins without rows.
//!
//! Which of two is the later one the catalog says, if it is not older than what this node has already
//! acted on. After a crash it may be: its rows go back to what the engine had kept, until the log has been
//! applied again. Whatever this node did because of an entry of the catalog comes after that entry in its
//! log, so a catalog that has reached the end of the log as it was at the start is new enough.

use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::Batch;
use log::{GroupId, PeerId};
use storage::TableId;

use crate::catalog_row::CatalogRow;
use crate::hosted::Hosted;
use crate::last_word::Parting;
use crate::node::{CATALOG_GROUP, Core};
use crate::pending::{Departed, Gone};
use crate::{AdminError, Catalog, TableConfig};

/// A replica that has left is named for so long before another takes its place: a change of the catalog that
/// no longer names it may be on its way.
const STAYS_NAMED: Duration = Duration::from_secs(5);

impl Core {
    /// Whether the catalog here has everything that this node acted on before it was started. Once it
    /// has, it always has. To be asked before the catalog's rows are read.
    pub(crate) fn knows_its_past(&self) -> bool {
        if self.past_is_known.load(Ordering::Acquire) {
            return true;
        }
        let Ok(status) = self.log.group_status(CATALOG_GROUP) else { return false };
        // A log that was cut below that end had nothing committed there, and nobody acted on it.
        let is_known = !status.needs_rows && status.applied >= self.catalog_end.min(status.last);
        self.past_is_known.store(is_known, Ordering::Release);
        is_known
    }

    /// Whether a replica of the table is open here under a name that `config` does not know, and it is
    /// time to do something about it.
    pub(crate) fn has_earlier(&self, config: &TableConfig) -> bool {
        if !self.past_is_known.load(Ordering::Acquire) {
            return false;
        }
        let hosted = io::task::lock(&self.hosted);
        config.shards.iter().any(|shard| {
            let named = shard.replicas.iter().chain(&shard.leaving);
            let mut named = named.filter(|replica| replica.server == self.identity.server);
            let open = hosted.get(&shard.group);
            open.is_some_and(|open| named.next().is_some_and(|replica| replica.peer != open.own))
        })
    }

    /// Discards the replica of `group` that is open here, if it is not `named`.
    pub(crate) fn discard_earlier(
        &self,
        table: TableId,
        group: GroupId,
        named: PeerId,
    ) -> Result<(), AdminError> {
        let earlier = {
            let mut hosted = io::task::lock(&self.hosted);
            match hosted.get(&group) {
                Some(open) if open.own != named => hosted.remove(&group),
                _ => None,
            }
        };
        let Some(Hosted { shard, own, gate, .. }) = earlier else { return Ok(()) };
        let of = crate::words::group(&self.catalog(), group);
        tracing::info!("The replica of {of} on this server was removed; a new one takes its place");
        tracing::debug!("group {group}: {own} was removed here, {named} takes its place");
        gate.shut();
        shard.retire();
        self.leave_as(table, group)?;
        Ok(())
    }

    /// Takes leave of a group as the replica that the log knows; whether another may take its place. Its rows stay until
    /// those of the next one are copied over them.
    pub(crate) fn leave_as(&self, table: TableId, group: GroupId) -> Result<bool, AdminError> {
        let is_written = self.end_in_log(group, Parting::Leaves)?;
        self.replicas.forget(group);
        match is_written {
            true => {
                let mut batch = Batch::new();
                storage::forget_group(&mut batch, table, group);
                self.engine().write(batch)?;
            }
            false => self.note_departed(group, Departed { table, open: None }),
        }
        Ok(is_written)
    }

    /// A replica that the catalog names here has left its group for good.
    pub(crate) fn note_gone(&self, table: TableId, group: GroupId, peer: PeerId) {
        io::task::lock(&self.pending).gone.insert(group, Gone { table, peer, since: io::task::now() });
    }

    /// Names replicas on this server anew that have left their groups for good and are named all the same, also
    /// by the newest catalog: nothing but another one can take their place.
    pub(crate) fn replace_gone(&self, catalog: &Catalog) {
        let is_named = |group: &GroupId, gone: &Gone| {
            let table = catalog.table_by_id(gone.table);
            let mut shards = table.iter().flat_map(|table| &table.config.shards);
            shards.any(|shard| {
                shard.group == *group && shard.replicas.iter().any(|replica| replica.peer == gone.peer)
            })
        };
        let due: Vec<(GroupId, Gone)> = {
            let mut pending = io::task::lock(&self.pending);
            pending.gone.retain(|group, gone| is_named(group, gone));
            let due = pending.gone.iter().filter(|(_, gone)| io::task::now() - gone.since > STAYS_NAMED);
            due.map(|(group, gone)| (*group, *gone)).collect()
        };
        if due.is_empty() || !self.is_newest(catalog.version) {
            return;
        }
        for (group, gone) in due {
            let of = crate::words::group(catalog, group);
            tracing::info!("The replica of {of} on this server had left for good; a new one takes its place");
            if let Err(error) = self.name_anew(gone.table, group, gone.peer) {
                tracing::warn!("No new replica of {of} for this server, whose old one has left: {error}");
            }
        }
    }

    /// A replica that the catalog names was removed from its group, by a leader whose catalog was older:
    /// it can never come back, so its server gets another one.
    pub(crate) fn name_anew(&self, table: TableId, group: GroupId, gone: PeerId) -> Result<(), AdminError> {
        // Whoever changes the catalog now may wait for the end of this step.
        let Some(_one_at_a_time) = self.changing.try_lock() else { return Ok(()) };
        self.change_held(|catalog, draft| {
            let Some(table) = catalog.table_by_id(table) else { return Ok(()) };
            let mut config = table.config.clone();
            let shards = config.shards.iter_mut().filter(|shard| shard.group == group);
            for replica in shards.flat_map(|shard| &mut shard.replicas).filter(|known| known.peer == gone) {
                replica.peer = self.new_peer();
            }
            if config != table.config {
                draft.put(CatalogRow::Table(config));
            }
            Ok(())
        })
    }
}
