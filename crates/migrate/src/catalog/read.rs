//! Reads a cluster's catalog with the rights that the user has.

use std::time::{SystemTime, UNIX_EPOCH};

use client::answer::FailureKind;
use client::terms;
use serde_json::{Value, json};

use super::facts::{Catalog, Grant, Hook, Index, ServerFacts, Shard, TableFacts, User};
use crate::error::{InputError, MigrateError};
use crate::only::{self, Only};
use crate::queries::TableName;
use crate::server::Connection;

const SYSTEM: &str = "rethinkdb";

/// The tables that are read with their settings.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// The tables that `--only` names.
    Only(&'a [Only]),
    /// The same, as far as they exist.
    Present(&'a [Only]),
    /// These tables, as far as they exist.
    Tables(&'a [TableName]),
}

impl Scope<'_> {
    fn has(&self, db: &str, table: &str) -> bool {
        match self {
            Scope::Only(only) | Scope::Present(only) => only::has_table(only, db, table),
            Scope::Tables(tables) => tables.iter().any(|name| name.db == db && name.table == table),
        }
    }
}

/// Reads a cluster's catalog; tables outside of `scope` only by name.
///
/// System tables that the user may not read are noted. Fails if a table of the scope may not be read, and if `--only` names something
/// that is not there.
pub fn read(connection: &mut Connection, scope: Scope<'_>) -> Result<Catalog, MigrateError> {
    let mut catalog = Catalog { version: connection.server_version().to_owned(), ..Catalog::default() };
    (catalog.server_name, catalog.server_id) = connection.server_info()?;
    catalog.clock_ahead_ms = clock_ahead_ms(connection)?;
    catalog.servers = system_rows(connection, "server_config", &mut catalog.unread)?
        .map(|rows| rows.iter().map(server).collect());
    let names = table_names(connection)?;
    if let Scope::Only(only) = scope {
        only::check(only, &names)?;
    }
    let configs = system_rows(connection, "table_config", &mut catalog.unread)?;
    for (db, tables) in &names {
        for table in tables.iter().filter(|table| scope.has(db, table)) {
            let name = TableName::new(db, table);
            let is_it = |row: &&Value| row["db"] == db.as_str() && row["name"] == table.as_str();
            let config = configs.as_ref().and_then(|rows| rows.iter().find(is_it));
            catalog.tables.push(read_table(connection, name, config)?);
        }
    }
    catalog.users = system_rows(connection, "users", &mut catalog.unread)?.map(users);
    catalog.grants = system_rows(connection, "permissions", &mut catalog.unread)?.map(grants);
    catalog.names = names;
    Ok(catalog)
}

/// All databases with their tables, without the system's.
fn table_names(connection: &mut Connection) -> Result<Vec<(String, Vec<String>)>, MigrateError> {
    let mut names = Vec::new();
    for db in strings(&connection.ask("the list of databases", &terms::db_list())?) {
        if db != SYSTEM {
            let tables = connection.ask("the list of tables", &terms::table_list(&db))?;
            names.push((db, strings(&tables)));
        }
    }
    Ok(names)
}

/// Rows of a system table; `None`, with a note, if the user may not read it.
fn system_rows(
    connection: &mut Connection,
    table: &str,
    unread: &mut Vec<String>,
) -> Result<Option<Vec<Value>>, MigrateError> {
    let what = format!("{SYSTEM}.{table}");
    match connection.ask(&what, &terms::table(SYSTEM, table)) {
        Ok(Value::Array(rows)) => Ok(Some(rows)),
        Ok(_) => Ok(Some(Vec::new())),
        Err(error) if is_refusal(&error) => {
            unread.push(format!("{what} cannot be read by this user: {error}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn read_table(
    connection: &mut Connection,
    name: TableName,
    config: Option<&Value>,
) -> Result<TableFacts, MigrateError> {
    let info = connection.ask(&format!("info of {name}"), &terms::info(name.term())).map_err(|error| {
        match is_refusal(&error) {
            true => InputError::new(format!(
                "{name} cannot be read by this user ({error}): grant it `read`, or leave the table out with --only"
            ))
            .into(),
            false => error,
        }
    })?;
    let statuses = connection.ask(&format!("indexes of {name}"), &json!([139, [name.term()]]))?;
    let hook = match config {
        Some(config) => Hook::parse(&config["write_hook"]),
        None => read_hook(connection, &name)?,
    };
    let text = |value: &Value, default: &str| value.as_str().unwrap_or(default).to_owned();
    let config = config.unwrap_or(&Value::Null);
    let estimates = info["doc_count_estimates"].as_array().into_iter().flatten();
    Ok(TableFacts {
        id: text(&info["id"], ""),
        primary_key: text(&info["primary_key"], "id"),
        durability: text(&config["durability"], "hard"),
        write_acks: text(&config["write_acks"], "majority"),
        compression: text(&config["compression"], "default"),
        shards: config["shards"].as_array().into_iter().flatten().map(shard).collect(),
        indexes: statuses.as_array().into_iter().flatten().map(index).collect(),
        hook,
        rows: estimates.filter_map(Value::as_f64).sum::<f64>() as u64,
        name,
    })
}

/// A table's hook, as far as the user may see it and the server knows hooks. Fails when the server is lost.
pub fn read_hook(connection: &mut Connection, name: &TableName) -> Result<Option<Hook>, MigrateError> {
    match connection.ask(&format!("write hook of {name}"), &json!([190, [name.term()]])) {
        Ok(hook) => Ok(Hook::parse(&hook)),
        Err(MigrateError::Query { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn index(status: &Value) -> Index {
    let flag = |name: &str| status[name].as_bool().unwrap_or(false);
    let text = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
    Index {
        name: text("index"),
        function: status["function"].clone(),
        query: text("query"),
        multi: flag("multi"),
        geo: flag("geo"),
        outdated: flag("outdated"),
        ready: flag("ready"),
    }
}

fn shard(row: &Value) -> Shard {
    Shard { replicas: strings(&row["replicas"]), nonvoting: strings(&row["nonvoting_replicas"]) }
}

fn server(row: &Value) -> ServerFacts {
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    ServerFacts { id: text("id"), name: text("name"), tags: strings(&row["tags"]) }
}

fn users(rows: Vec<Value>) -> Vec<User> {
    let user = |row: &Value| {
        let name = row["id"].as_str()?.to_owned();
        Some(User { name, has_password: row["password"] != Value::Bool(false) })
    };
    rows.iter().filter_map(user).filter(|user| user.name != "admin").collect()
}

fn grants(rows: Vec<Value>) -> Vec<Grant> {
    let grant = |row: &Value| {
        let text = |name: &str| row[name].as_str().map(str::to_owned);
        Some(Grant {
            user: text("user")?,
            db: text("database"),
            table: text("table"),
            permissions: row["permissions"].clone(),
        })
    };
    rows.iter().filter_map(grant).filter(|grant| grant.user != "admin").collect()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn is_refusal(error: &MigrateError) -> bool {
    let says_so = error.to_string().contains("permission");
    error.kind() == Some(FailureKind::Permission) || (error.kind().is_some() && says_so)
}

/// The server's clock minus this machine's, to half the time of a query.
fn clock_ahead_ms(connection: &mut Connection) -> Result<i64, MigrateError> {
    let local = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let before = local();
    let now = connection.ask("the server's clock", &json!([102, [[103, []]]]))?;
    let own = f64::midpoint(before, local());
    Ok(now.as_f64().map_or(0, |server| ((server - own) * 1000.0).round() as i64))
}
