//! The tables of database `rethinkdb`: the state of the cluster as rows.

mod cluster_config;
mod copy_jobs;
mod current_issues;
mod db_config;
mod debug;
mod fields;
mod index_jobs;
mod jobs;
mod logs;
mod metrics;
mod permissions;
mod reconfiguration;
mod rights;
mod saved_queries;
mod server_config;
mod server_status;
mod shard_places;
mod slow_queries;
mod stats;
mod table_config;
mod table_status;
mod users;

pub(crate) use db_config::db_row;
pub(crate) use reconfiguration::{Reconfiguration, ReconfigurationKind};
pub(crate) use rights::{RightsChange, rights_datum};
pub(crate) use server_config::server_row;
pub(crate) use table_config::{config_row, shard_rows};
pub(crate) use table_status::status_row;

use crate::table::{SYSTEM_TABLES, SystemTable};

const TABLES: [&dyn SystemTable; 18] = [
    &debug::Scratch,
    &debug::Stats,
    &debug::TableStatus,
    &metrics::Metrics,
    &saved_queries::SavedQueries,
    &slow_queries::SlowQueriesTable,
    &cluster_config::ClusterConfig,
    &current_issues::CurrentIssues,
    &db_config::DbConfigTable,
    &jobs::JobsTable,
    &logs::Logs,
    &permissions::PermissionsTable,
    &server_config::ServerConfig,
    &server_status::ServerStatus,
    &stats::Stats,
    &table_config::TableConfigTable,
    &table_status::TableStatus,
    &users::Users,
];

pub(crate) fn table(name: &str) -> Option<&'static dyn SystemTable> {
    TABLES.into_iter().find(|table| table.name() == name)
}

/// The names of system tables in `table_list`, sorted.
pub(crate) fn listed() -> impl Iterator<Item = &'static str> {
    SYSTEM_TABLES.into_iter().filter(|name| !name.starts_with('_'))
}
