//! This server's replica of the catalog. It is opened first, so that the server can read it before it accepts connections.

use std::sync::Arc;

use datum::KeyRange;
use log::{InitialConfig, Log};
use shard::{Replicas, Shard};
use storage::TableId;

use super::identity::Identity;
use super::row::{CatalogRow, user_key};
use crate::config::{CATALOG_GROUP, CATALOG_TABLE};
use crate::error::{AdminError, OpenError};
use crate::rpc::Peers;

/// The replica of the catalog, of a server that is starting.
pub struct CatalogReplica {
    pub(crate) shard: Arc<Shard>,
}

impl CatalogReplica {
    /// Opens the replica of the server that `identity` names. If it is the only voter, its log is replayed. Otherwise
    /// it holds the rows of its engine until it receives messages from the other replicas.
    pub fn open(
        identity: &Identity,
        replicas: &Arc<Replicas>,
        log: &Arc<dyn Log>,
        peers: &Peers,
    ) -> Result<CatalogReplica, OpenError> {
        peers.set_own(identity.server);
        let initial = identity.joined.map_or(InitialConfig::Single, |own| InitialConfig::Joining { own });
        let table = TableId::from_uuid(CATALOG_TABLE);
        let shard = Shard::open(replicas, log.clone(), table, CATALOG_GROUP, KeyRange::all(), initial)
            .map_err(AdminError::from)?;
        // Tables can be dropped on a full disk.
        shard.keep_writable();
        Ok(CatalogReplica { shard })
    }

    /// Whether the user `admin` has a password according to the rows of this replica; `None` if it has no row of that user.
    pub fn admin_has_password(&self) -> Result<Option<bool>, OpenError> {
        let Some(row) = self.shard.get(&user_key("admin")).map_err(AdminError::from)? else {
            return Ok(None);
        };
        match CatalogRow::from_object(&row)? {
            CatalogRow::User(admin) => Ok(Some(admin.has_password)),
            _ => Ok(None),
        }
    }

    /// Whether `admin` has a password according to this replica.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.admin_has_password().is_ok_and(|has_password| has_password == Some(true))
    }
}
