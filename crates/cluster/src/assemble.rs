//! Brings a replica of every shard of a table to this server, so that the table can be divided anew
//! here: only who has all rows can put other shards over them without moving any.

use std::time::Duration;

use storage::TableId;

use crate::admin::table_by_id;
use crate::catalog_row::CatalogRow;
use crate::node::Core;
use crate::state::ReplicaState;
use crate::{AdminError, Catalog, ReplicaConfig, ShardConfig, ShardsWanted, TableChange, TableHandle};

/// News of replicas on other servers do not come here: how often to look.
const LOOK: Duration = Duration::from_millis(200);

impl Core {
    /// Assembles the shards here if `change` asks for another number of them and some are elsewhere:
    /// to be called before [`Core::change_table`]. See [`Core::assemble`].
    pub fn assemble_for(
        &self,
        id: TableId,
        change: &TableChange,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(), AdminError> {
        let Some(wanted) = &change.shards else { return Ok(()) };
        let count = match wanted {
            ShardsWanted::Named(places) => places.len(),
            ShardsWanted::Placed(wanted) => wanted.shards,
        };
        let catalog = self.catalog();
        let handle = table_by_id(&catalog, id)?;
        if count == handle.config.shards.len() {
            return Ok(());
        }
        // What cannot be placed is refused before anything is copied.
        self.places(&catalog, wanted, Some(handle))?;
        self.assemble(id, go_on)
    }

    /// Gives this server a voting replica of every shard of a table and returns when each has all
    /// rows. The table is read and written meanwhile; the replicas stay until the table is divided
    /// or its replicas are set, so whoever is interrupted goes on where it was. Fails when `go_on`, asked
    /// now and then, says so.
    pub fn assemble(&self, id: TableId, go_on: &dyn Fn() -> bool) -> Result<(), AdminError> {
        while go_on() {
            let seen = self.state_news().seen();
            let catalog = self.catalog();
            let handle = table_by_id(&catalog, id)?;
            if handle.shards().iter().all(|shard| shard.near().is_some_and(|near| near.is_leader())) {
                return Ok(());
            }
            if self.is_proxy(&catalog) {
                return Err(AdminError::ProxyDivides);
            }
            if handle.config.shards.iter().any(|shard| !self.votes_here(shard)) {
                self.add_own_replicas(id)?;
            } else if self.all_ready_here(handle) {
                return Ok(());
            } else {
                self.state_news().wait(seen, LOOK);
            }
        }
        Err(AdminError::NotTogether)
    }

    fn is_proxy(&self, catalog: &Catalog) -> bool {
        catalog.server(self.identity.server).is_some_and(|server| server.is_proxy)
    }

    fn votes_here(&self, shard: &ShardConfig) -> bool {
        shard.replicas.iter().any(|replica| replica.server == self.identity.server && replica.voting)
    }

    fn all_ready_here(&self, handle: &TableHandle) -> bool {
        let own = self.identity.server;
        let is_ready = |(server, state): &(crate::ServerId, ReplicaState)| {
            *server == own && *state == ReplicaState::Ready
        };
        handle.shards().iter().all(|shard| shard.near().is_some_and(|near| !near.is_void()))
            && self.table_state(handle).iter().all(|shard| shard.replicas.iter().any(is_ready))
    }

    fn add_own_replicas(&self, id: TableId) -> Result<(), AdminError> {
        let server = self.identity.server;
        self.change(|catalog, draft| {
            let mut config = table_by_id(catalog, id)?.config.clone();
            for shard in &mut config.shards {
                if shard.leaving.iter().any(|replica| replica.server == server) {
                    return Err(AdminError::StillLeaving(server));
                }
                match shard.replicas.iter_mut().find(|replica| replica.server == server) {
                    Some(replica) => replica.voting = true,
                    None => {
                        let peer = self.new_peer();
                        shard.replicas.push(ReplicaConfig { server, peer, voting: true });
                    }
                }
            }
            draft.put(CatalogRow::Table(config));
            Ok(())
        })
    }
}
