//! Changes to servers: their names and tags, and their removal for good.

use datum::Text;

use crate::catalog_row::{CatalogRow, server_key};
use crate::node::Core;
use crate::{AdminError, ServerId};

impl Core {
    /// Changes what a server's row says. Fails when there is no such server, or another has the name.
    pub fn change_server(
        &self,
        id: ServerId,
        name: &Text,
        tags: &[Text],
        cache_size_mb: Option<u64>,
    ) -> Result<(), AdminError> {
        self.change(|catalog, draft| {
            let mut server = catalog.server(id).cloned().ok_or(AdminError::ServerMissing(id))?;
            if catalog.server_named(name).is_some_and(|other| other.id != id) {
                return Err(AdminError::ServerNameTaken { from: server.name, to: name.clone() });
            }
            server.name = name.clone();
            server.tags = tags.to_vec();
            server.cache_size_mb = cache_size_mb;
            draft.put(CatalogRow::Server(server));
            Ok(())
        })
    }

    /// Removes a server for good: it is not let in again, and its replicas leave their groups.
    ///
    /// Fails while it is connected, and when a shard has its only replica there.
    pub fn remove_server(&self, id: ServerId) -> Result<(), AdminError> {
        if self.is_connected(id) {
            return Err(AdminError::ServerConnected(id));
        }
        self.change(|catalog, draft| {
            if catalog.server(id).is_none() {
                return Err(AdminError::ServerMissing(id));
            }
            for table in catalog.tables() {
                let mut config = table.config.clone();
                for shard in &mut config.shards {
                    shard.replicas.retain(|replica| replica.server != id);
                    shard.leaving.retain(|replica| replica.server != id);
                    let Some(first) = shard.replicas.iter().find(|replica| replica.voting) else {
                        return Err(AdminError::OnlyReplica { server: id, table: config.name });
                    };
                    if shard.primary == id {
                        shard.primary = first.server;
                    }
                }
                if config != table.config {
                    draft.put(CatalogRow::Table(config));
                }
            }
            draft.delete(server_key(id));
            draft.put(CatalogRow::Removed(id));
            Ok(())
        })
    }
}
