//! The first rows of the catalog of a new cluster.

use datum::{Object, Text};

use crate::catalog::CatalogClient;
use crate::catalog::row::CatalogRow;
use crate::config::{DbConfig, DbId, Ids, PeerId, ReplicaConfig, ServerConfig, ServerId, User};
use crate::error::AdminError;

/// The properties of a server that is new to the catalog, as it was started with.
pub(super) struct NewServer {
    pub(super) name: Text,
    pub(super) tags: Vec<Text>,
    pub(super) cache_size_mb: Option<u64>,
    pub(super) addresses: Vec<Text>,
}

/// Writes the user `admin` and the database `test`.
pub(super) fn write_first_rows(
    client: &CatalogClient,
    ids: &Ids,
    (password, has_password): (Object, bool),
) -> Result<(), AdminError> {
    let admin = User { name: Text::from_static("admin"), password, has_password };
    let test = DbConfig { id: DbId(ids.new_uuid()), name: Text::from_static("test") };
    client.change(|catalog, draft| {
        // A restarted node may have bootstrapped the cluster before, and lack the newest entries of the catalog.
        if catalog.user("admin").is_none() {
            draft.put(CatalogRow::User(admin.clone()));
            draft.put(CatalogRow::Db(test.clone()));
        }
        Ok(())
    })
}

/// Writes the row of the server that bootstrapped the cluster. The row of a server that joined is written by the server that
/// admitted it.
pub(super) fn write_own_row(
    client: &CatalogClient,
    own: ServerId,
    peer: PeerId,
    server: &NewServer,
) -> Result<(), AdminError> {
    client.change(|catalog, draft| {
        if catalog.server(own).is_some() || catalog.is_removed(own) {
            return Ok(());
        }
        draft.put(CatalogRow::Server(ServerConfig {
            id: own,
            name: server.name.clone(),
            tags: server.tags.clone(),
            cache_size_mb: server.cache_size_mb,
            addresses: server.addresses.clone(),
            catalog: ReplicaConfig { server: own, peer, voting: true },
            is_proxy: false,
        }));
        Ok(())
    })
}
