//! A cluster's databases, tables, indexes, hooks, users and servers.

use serde_json::Value;

use crate::queries::TableName;

/// All that was read of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// The server's version text.
    pub version: String,
    pub server_name: String,
    pub server_id: String,
    /// Its clock minus that of this machine.
    pub clock_ahead_ms: i64,
    /// All databases, without `rethinkdb`, with the names of their tables.
    pub names: Vec<(String, Vec<String>)>,
    /// The tables that were asked for.
    pub tables: Vec<TableFacts>,
    /// `None`: the user may not read them.
    pub users: Option<Vec<User>>,
    pub grants: Option<Vec<Grant>>,
    pub servers: Option<Vec<ServerFacts>>,
    /// Tables of the system that could not be read, with the reason.
    pub unread: Vec<String>,
}

impl Catalog {
    pub fn table(&self, name: &TableName) -> Option<&TableFacts> {
        self.tables.iter().find(|table| table.name == *name)
    }

    pub fn has_db(&self, db: &str) -> bool {
        self.names.iter().any(|(name, _)| name == db)
    }
}

/// A server of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerFacts {
    pub id: String,
    pub name: String,
    pub tags: Vec<String>,
}

/// One table. Settings that could not be read have the values of a new table.
#[derive(Clone, PartialEq, Debug)]
pub struct TableFacts {
    pub name: TableName,
    /// Its UUID.
    pub id: String,
    pub primary_key: String,
    /// `hard` or `soft`.
    pub durability: String,
    /// `majority` or `single`.
    pub write_acks: String,
    /// `default` or `archive`.
    pub compression: String,
    /// Empty if they could not be read.
    pub shards: Vec<Shard>,
    pub indexes: Vec<Index>,
    pub hook: Option<Hook>,
    /// The source's estimate of the number of rows.
    pub rows: u64,
}

/// The servers of a shard, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shard {
    pub replicas: Vec<String>,
    pub nonvoting: Vec<String>,
}

/// A secondary index. `function` is the binary, as it came.
#[derive(Clone, PartialEq, Debug)]
pub struct Index {
    pub name: String,
    pub function: Value,
    pub query: String,
    pub multi: bool,
    pub geo: bool,
    pub outdated: bool,
    pub ready: bool,
}

impl Index {
    /// The bytes of the function as text without breaks.
    pub fn base64(&self) -> String {
        base64_of(&self.function)
    }
}

/// A write hook.
#[derive(Clone, PartialEq, Debug)]
pub struct Hook {
    pub function: Value,
    pub query: String,
}

impl Hook {
    /// The hook that `get_write_hook`, `table_config` or the description of a table in a dump shows. `None` if there is none.
    pub fn parse(value: &Value) -> Option<Hook> {
        let function = value.get("function")?.clone();
        Some(Hook { function, query: value["query"].as_str().unwrap_or_default().to_owned() })
    }

    /// The bytes of the function as text without breaks.
    pub fn base64(&self) -> String {
        base64_of(&self.function)
    }
}

fn base64_of(binary: &Value) -> String {
    binary["data"].as_str().unwrap_or_default().split_whitespace().collect()
}

/// A user other than `admin`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    pub name: String,
    pub has_password: bool,
}

/// Permissions of a user at one scope.
#[derive(Clone, PartialEq, Debug)]
pub struct Grant {
    pub user: String,
    pub db: Option<String>,
    pub table: Option<String>,
    pub permissions: Value,
}
