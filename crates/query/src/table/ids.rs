//! Ids of the system database and its tables. They are the same on every node and never change.

use cluster::DbId;
use storage::TableId;
use uuid::{Uuid, uuid};

const SYSTEM_DB_ID: Uuid = uuid!("b99b9572-8e53-5fef-9a2b-5e6aba3edf1c");

/// The id of database `rethinkdb`.
pub(crate) fn system_db_id() -> DbId {
    DbId(SYSTEM_DB_ID)
}

/// The id of a system table, derived from its name.
pub(crate) fn system_table_id(name: &str) -> TableId {
    TableId::from_uuid(Uuid::new_v5(&SYSTEM_DB_ID, name.as_bytes()))
}

/// The names of all system tables.
pub(crate) const SYSTEM_TABLES: [&str; 18] = [
    "_debug_scratch",
    "_debug_stats",
    "_debug_table_status",
    "_metrics",
    "_saved_queries",
    "_slow_queries",
    "cluster_config",
    "current_issues",
    "db_config",
    "jobs",
    "logs",
    "permissions",
    "server_config",
    "server_status",
    "stats",
    "table_config",
    "table_status",
    "users",
];
