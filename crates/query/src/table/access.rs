//! What a user may do. Every term that reads, writes or configures asks here first.
//!
//! `admin` may do everything. Others may do what they were granted: the word of the narrowest
//! scope counts, table before database before everything, and no word at all means no. The system
//! database is not part of everything: it must be granted itself.

use cluster::{Catalog, Database, DbId, Permissions, Scope};
use reql::EvalError;
use storage::TableId;

use super::TableRef;
use super::ids::{system_db_id, system_table_id};
use crate::context::{Caller, Cx};

/// What is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// Reading rows.
    Read,
    /// Writing rows, which takes reading them.
    Write,
    /// Creating, dropping and configuring.
    Config,
    /// Reaching out to the web.
    Connect,
}

impl Privilege {
    /// The permission that is said to be missing. Writing names `write` even where reading is what
    /// is missing. Source: docs/reql-spec.md section 15.
    fn name(self) -> &'static str {
        match self {
            Privilege::Read => "read",
            Privilege::Write => "write",
            Privilege::Config => "config",
            Privilege::Connect => "connect",
        }
    }
}

/// Where it is about to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resource {
    /// The whole cluster.
    Cluster,
    /// One database.
    Db(DbId),
    /// One table.
    Table(DbId, TableId),
}

impl Resource {
    /// The place of a table.
    pub fn of_table(table: &TableRef) -> Resource {
        match table {
            TableRef::Stored(stored) => Resource::Table(stored.handle.db.id, stored.handle.config.id),
            TableRef::System(system) => Resource::Table(system_db_id(), system_table_id(system.table.name())),
        }
    }
}

/// Fails if whoever asks may not write the rows of `table`. Of a system table they are read first.
pub(crate) fn check_write(cx: &Cx, table: &TableRef) -> Result<(), EvalError> {
    let place = Resource::of_table(table);
    match table {
        TableRef::Stored(_) => {}
        TableRef::System(system) if system.table.is_hidden() => check_admin(cx)?,
        TableRef::System(_) => check(cx, Privilege::Read, place)?,
    }
    check(cx, Privilege::Write, place)
}

/// Fails if whoever asks may not read the rows of `table`.
pub(crate) fn check_read(cx: &Cx, table: &TableRef) -> Result<(), EvalError> {
    match table {
        TableRef::System(system) if system.table.is_hidden() => check_admin(cx),
        _ => check(cx, Privilege::Read, Resource::of_table(table)),
    }
}

/// Fails if whoever asks may not read the rows of `table`, which an answer may still be made of when that changes.
pub(crate) fn check_stream_read(cx: &Cx, table: &TableRef) -> Result<(), EvalError> {
    check_read(cx, table)?;
    if let TableRef::Stored(stored) = table {
        cx.tables_read.add(stored.handle.db.id, stored.handle.config.id);
    }
    Ok(())
}

/// Fails if whoever asks may by now not read what the answer is made of. Nothing is looked at before the catalog
/// has changed. Source: every batch is a read of its own in RethinkDB (clustering/query_routing/table_query_client.cc).
pub(crate) fn recheck_stream_reads(cx: &Cx) -> Result<(), EvalError> {
    let version = cx.node().catalog_guard().version();
    let tables = cx.tables_read.to_check(version).into_iter();
    tables
        .map(|(db, table)| Resource::Table(db, table))
        .try_for_each(|place| check(cx, Privilege::Read, place))
}

/// Fails if whoever asks may not configure, as `catalog` has it, a database and every table in it.
pub(crate) fn check_db_and_tables(cx: &Cx, catalog: &Catalog, db: &Database) -> Result<(), EvalError> {
    check_in(cx, catalog, Privilege::Config, Resource::Db(db.config.id))?;
    let tables = db.tables().into_iter().map(|table| Resource::Table(db.config.id, table.config.id));
    tables.into_iter().try_for_each(|place| check_in(cx, catalog, Privilege::Config, place))
}

/// What is for debugging is for `admin` alone.
fn check_admin(cx: &Cx) -> Result<(), EvalError> {
    if cx.caller.is("admin") {
        return Ok(());
    }
    Err(EvalError::permission("Internal permission error, required `admin` permission."))
}

/// Fails if whoever asks may not do `need` at `place`.
pub(crate) fn check(cx: &Cx, need: Privilege, place: Resource) -> Result<(), EvalError> {
    check_in(cx, &cx.node().catalog_guard(), need, place)
}

/// Fails if whoever asks may not do `need` at `place` as `catalog` has it: for a change that is worked out on it.
pub(crate) fn check_in(
    cx: &Cx,
    catalog: &Catalog,
    need: Privilege,
    place: Resource,
) -> Result<(), EvalError> {
    match &cx.caller {
        Caller::User(user) => check_user(catalog, user, need, place),
        Caller::None => Err(EvalError::permission(format!(
            "Internal permission error, required `{}` permission.",
            need.name()
        ))),
    }
}

/// Fails if `user` may not do `need` at `place`.
pub(crate) fn check_user(
    catalog: &Catalog,
    user: &str,
    need: Privilege,
    place: Resource,
) -> Result<(), EvalError> {
    if user == "admin" {
        return Ok(());
    }
    let flags: &[Flag] = match need {
        Privilege::Read => &[|granted| granted.read],
        Privilege::Write => &[|granted| granted.read, |granted| granted.write],
        Privilege::Config => &[|granted| granted.config],
        Privilege::Connect => &[|granted| granted.connect],
    };
    if flags.iter().all(|flag| has(catalog, user, place, *flag)) {
        return Ok(());
    }
    let name = need.name();
    Err(EvalError::permission(format!("User `{user}` does not have the required `{name}` permission.")))
}

/// One of the permissions.
type Flag = fn(&Permissions) -> Option<bool>;

fn has(catalog: &Catalog, user: &str, place: Resource, flag: Flag) -> bool {
    let scopes = match place {
        Resource::Cluster => [Some(Scope::Global), None, None],
        Resource::Db(db) => [Some(Scope::Database(db)), global(db), None],
        Resource::Table(db, table) => [Some(Scope::Table(db, table)), Some(Scope::Database(db)), global(db)],
    };
    let granted_by = |scope: Scope| {
        let granted = catalog.grants().iter().find(|grant| grant.user == user && grant.scope == scope);
        granted.and_then(|grant| flag(&grant.permissions))
    };
    scopes.into_iter().flatten().find_map(granted_by).unwrap_or(false)
}

/// The scope around a database: the system database has none.
fn global(db: DbId) -> Option<Scope> {
    (db != system_db_id()).then_some(Scope::Global)
}
