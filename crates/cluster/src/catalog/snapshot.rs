//! One immutable version of the catalog: every database, table, user, permission and server.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datum::Text;
use storage::TableId;
use uuid::Uuid;

use super::row::RemovedServer;
use crate::config::{DbConfig, DbId, Grant, ReplicaConfig, SavedQuery, Scope, ServerConfig, ServerId, User};
use crate::error::AdminError;
use crate::routing::TableHandle;

/// The default heartbeat timeout, in seconds. Source: docs/reql-spec.md section 14.
const HEARTBEAT_SECS: u64 = 10;

/// A database and its tables by name.
#[derive(Clone)]
pub struct Database {
    /// Its id and name.
    pub config: DbConfig,
    tables: HashMap<Text, Arc<TableHandle>>,
}

impl Database {
    #[must_use]
    pub fn table(&self, name: &str) -> Option<&Arc<TableHandle>> {
        self.tables.get(name)
    }

    /// All tables, in order of name.
    #[must_use]
    pub fn tables(&self) -> Vec<&Arc<TableHandle>> {
        let mut tables: Vec<_> = self.tables.values().collect();
        tables.sort_by(|a, b| a.config.name.cmp(&b.config.name));
        tables
    }
}

/// One version of the catalog. A change creates a new version.
#[derive(Clone, Default)]
pub struct Catalog {
    databases: HashMap<Text, Database>,
    users: HashMap<Text, User>,
    grants: Vec<Grant>,
    saved_queries: BTreeMap<Uuid, SavedQuery>,
    servers: BTreeMap<ServerId, ServerConfig>,
    /// The permanently removed servers, with their last names if those were stored.
    removed: BTreeMap<ServerId, Option<Text>>,
    heartbeat_secs: Option<u64>,
    pub(crate) group_next: u64,
    pub(crate) version: u64,
}

impl Catalog {
    #[must_use]
    pub fn database(&self, name: &str) -> Option<&Database> {
        self.databases.get(name)
    }

    #[must_use]
    pub fn database_by_id(&self, id: DbId) -> Option<&Database> {
        self.databases.values().find(|db| db.config.id == id)
    }

    /// All databases, in order of name.
    #[must_use]
    pub fn databases(&self) -> Vec<&Database> {
        let mut databases: Vec<_> = self.databases.values().collect();
        databases.sort_by(|a, b| a.config.name.cmp(&b.config.name));
        databases
    }

    /// The table `table` of the database `db`.
    #[must_use]
    pub fn table(&self, db: &str, table: &str) -> Option<&Arc<TableHandle>> {
        self.databases.get(db)?.table(table)
    }

    #[must_use]
    pub fn table_by_id(&self, id: TableId) -> Option<&Arc<TableHandle>> {
        self.databases.values().flat_map(|db| db.tables.values()).find(|table| table.config.id == id)
    }

    /// All tables, in order of database and name.
    #[must_use]
    pub fn tables(&self) -> Vec<&Arc<TableHandle>> {
        self.databases().into_iter().flat_map(Database::tables).collect()
    }

    /// The account with this name.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// All accounts, in order of name.
    #[must_use]
    pub fn users(&self) -> Vec<&User> {
        let mut users: Vec<_> = self.users.values().collect();
        users.sort_by(|a, b| a.name.cmp(&b.name));
        users
    }

    /// The permissions granted to users, in no order. `admin` has all permissions and no entry.
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// The saved queries of all users.
    pub fn saved_queries(&self) -> impl Iterator<Item = &SavedQuery> {
        self.saved_queries.values()
    }

    pub(crate) fn saved_query(&self, id: Uuid) -> Option<&SavedQuery> {
        self.saved_queries.get(&id)
    }

    /// All servers, in order of name.
    #[must_use]
    pub fn servers(&self) -> Vec<&ServerConfig> {
        let mut servers: Vec<_> = self.servers.values().collect();
        servers.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        servers
    }

    /// The replicas of the catalog itself: one on each server.
    pub(crate) fn own_replicas(&self) -> Vec<ReplicaConfig> {
        self.servers().iter().map(|server| server.catalog).collect()
    }

    /// The version: the number of changes so far.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    #[must_use]
    pub fn server(&self, id: ServerId) -> Option<&ServerConfig> {
        self.servers.get(&id)
    }

    /// The servers with this name. Two servers can have the same name after a join, until one is renamed.
    pub fn servers_named(&self, name: &str) -> impl Iterator<Item = &ServerConfig> {
        self.servers.values().filter(move |server| server.name == name)
    }

    /// Whether the server was permanently removed.
    #[must_use]
    pub fn is_removed(&self, id: ServerId) -> bool {
        self.removed.contains_key(&id)
    }

    /// The permanently removed servers.
    pub fn removed(&self) -> impl Iterator<Item = ServerId> {
        self.removed.keys().copied()
    }

    /// The name of the server with this id, also after it was permanently removed, because tables may still refer to
    /// it. `None` if the name of a removed server was not stored, or is the name of another server now.
    #[must_use]
    pub fn server_name(&self, id: ServerId) -> Option<&Text> {
        let name_of_removed = || {
            let name = self.removed.get(&id)?.as_ref()?;
            self.servers_named(name).next().is_none().then_some(name)
        };
        self.server(id).map(|server| &server.name).or_else(name_of_removed)
    }

    /// The heartbeat timeout, in seconds: a link to a server that sends nothing for this long is closed.
    #[must_use]
    pub fn heartbeat_secs(&self) -> u64 {
        self.heartbeat_secs.unwrap_or(HEARTBEAT_SECS)
    }

    pub(crate) fn set_heartbeat(&mut self, seconds: u64) {
        self.heartbeat_secs = Some(seconds);
    }

    pub(crate) fn put_server(&mut self, server: ServerConfig) {
        self.servers.insert(server.id, server);
    }

    pub(crate) fn remove_server(&mut self, removed: RemovedServer) {
        self.servers.remove(&removed.id);
        self.removed.insert(removed.id, removed.name);
    }

    pub(crate) fn put_database(&mut self, config: DbConfig) {
        let tables = self.database_by_id(config.id).map(|old| (old.config.name.clone(), old.tables.clone()));
        let tables = match tables {
            Some((old_name, tables)) => {
                self.databases.remove(&old_name);
                tables
            }
            None => HashMap::new(),
        };
        let tables = tables
            .into_iter()
            .map(|(name, table)| (name, Arc::new(table.renamed_db(config.clone()))))
            .collect();
        self.databases.insert(config.name.clone(), Database { config, tables });
    }

    pub(crate) fn put_table(&mut self, table: Arc<TableHandle>) {
        self.remove_table(table.config.id);
        let db = self
            .databases
            .get_mut(&table.db.name)
            .expect("invariant: a table is added to a database of the catalog");
        db.tables.insert(table.config.name.clone(), table);
    }

    pub(crate) fn remove_table(&mut self, id: TableId) {
        for db in self.databases.values_mut() {
            db.tables.retain(|_, table| table.config.id != id);
        }
    }

    pub(crate) fn put_user(&mut self, user: User) {
        self.users.insert(user.name.clone(), user);
    }

    pub(crate) fn put_saved_query(&mut self, query: SavedQuery) {
        self.saved_queries.insert(query.id, query);
    }

    pub(crate) fn put_grant(&mut self, grant: Grant) {
        self.remove_grant(&grant.user, grant.scope);
        if !grant.permissions.is_unset() {
            self.grants.push(grant);
        }
    }

    pub(crate) fn remove_grant(&mut self, user: &str, scope: Scope) {
        self.grants.retain(|old| old.user != user || old.scope != scope);
    }
}

pub(crate) fn find_db(catalog: &Catalog, name: &str) -> Result<DbConfig, AdminError> {
    let db = catalog.database(name).ok_or_else(|| AdminError::DbMissing(name.into()))?;
    Ok(db.config.clone())
}

pub(super) fn find_table<'a>(
    catalog: &'a Catalog,
    db: &str,
    name: &str,
) -> Result<&'a TableHandle, AdminError> {
    let db = catalog.database(db).ok_or_else(|| AdminError::DbMissing(db.into()))?;
    let missing = || AdminError::TableMissing { db: db.config.name.clone(), table: name.into() };
    db.table(name).map(|table| &**table).ok_or_else(missing)
}

pub(crate) fn table_by_id(catalog: &Catalog, id: TableId) -> Result<&TableHandle, AdminError> {
    let missing = || AdminError::TableMissing { db: Text::new(), table: id.uuid().to_string().into() };
    catalog.table_by_id(id).map(|table| &**table).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PeerId, ReplicaConfig};

    fn server(id: u128, name: &str) -> ServerConfig {
        let id = ServerId(Uuid::from_u128(id));
        ServerConfig {
            id,
            name: name.into(),
            tags: Vec::new(),
            cache_size_mb: None,
            addresses: Vec::new(),
            catalog: ReplicaConfig { server: id, peer: PeerId(1), voting: true },
            is_proxy: false,
        }
    }

    #[test]
    fn a_removed_server_keeps_its_name_until_another_has_it() {
        let (ada, other) = (server(1, "ada"), server(2, "ada"));
        let mut catalog = Catalog::default();
        catalog.put_server(ada.clone());
        catalog.remove_server(RemovedServer { id: ada.id, name: Some(ada.name.clone()) });
        assert!(catalog.is_removed(ada.id) && catalog.server(ada.id).is_none());
        assert_eq!(catalog.server_name(ada.id), Some(&ada.name));
        catalog.put_server(other.clone());
        assert_eq!(catalog.server_name(ada.id), None);
        assert_eq!(catalog.server_name(other.id), Some(&ada.name));
    }
}
