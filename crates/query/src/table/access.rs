//! Permission checks. Every term that reads, writes or configures calls them first.
//!
//! `admin` may do everything. Other users need grants. The narrowest scope that sets a permission
//! decides: table before database before global; a permission that is set nowhere is denied. Global permissions do not
//! cover the system database.

use cluster::{Catalog, Database, DbId, Permissions, Scope};
use reql::EvalError;
use storage::TableId;

use super::ids::{system_db_id, system_table_id};
use super::{Readers, TableRef};
use crate::context::{Caller, Cx};

/// The permission that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// Reading rows.
    Read,
    /// Writing rows, which also needs permission to read them.
    Write,
    /// Creating, dropping and configuring.
    Config,
    /// Sending HTTP requests.
    Connect,
}

impl Privilege {
    /// The permission that an error names; for a write it is `write`, even if only `read` is missing. Source:
    /// docs/reql-spec.md section 15.
    fn name(self) -> &'static str {
        match self {
            Privilege::Read => "read",
            Privilege::Write => "write",
            Privilege::Config => "config",
            Privilege::Connect => "connect",
        }
    }
}

/// The object of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resource {
    Cluster,
    /// One database.
    Db(DbId),
    Table(DbId, TableId),
}

impl Resource {
    pub fn of_table(table: &TableRef) -> Resource {
        match table {
            TableRef::Stored(stored) => Resource::Table(stored.handle.db.id, stored.handle.config.id),
            TableRef::System(system) => Resource::Table(system_db_id(), system_table_id(system.table.name())),
        }
    }
}

/// Fails if the caller may not write rows of `table`. Writes to system tables also need permission to read.
pub(crate) fn check_write(cx: &Cx, table: &TableRef) -> Result<(), EvalError> {
    let resource = Resource::of_table(table);
    match table {
        TableRef::Stored(_) => {}
        TableRef::System(system) => match system.table.readers() {
            Readers::All => return check_is_user(cx),
            Readers::Admin => check_admin(cx)?,
            Readers::Permitted => check(cx, Privilege::Read, resource)?,
        },
    }
    check(cx, Privilege::Write, resource)
}

/// Fails if the caller may not read rows of `table`.
pub(crate) fn check_read(cx: &Cx, table: &TableRef) -> Result<(), EvalError> {
    let readers = match table {
        TableRef::System(system) => system.table.readers(),
        TableRef::Stored(_) => Readers::Permitted,
    };
    match readers {
        Readers::All => check_is_user(cx),
        Readers::Admin => check_admin(cx),
        Readers::Permitted => check(cx, Privilege::Read, Resource::of_table(table)),
    }
}

/// Fails if the caller may not read rows of `table`. Records the table, so that the permission is checked again for
/// each batch of the result.
pub(crate) fn check_stream_read(cx: &Cx, table: &TableRef) -> Result<(), EvalError> {
    check_read(cx, table)?;
    if let TableRef::Stored(stored) = table {
        cx.tables_read.add(stored.handle.db.id, stored.handle.config.id);
    }
    Ok(())
}

/// Fails if the caller may not read the tables of its result any more. Nothing is checked while the catalog is
/// unchanged. Source: every batch is a separate read in RethinkDB (clustering/query_routing/table_query_client.cc).
pub(crate) fn recheck_stream_reads(cx: &Cx) -> Result<(), EvalError> {
    let version = cx.node().catalog_guard().version();
    let tables = cx.tables_read.to_check(version).into_iter();
    tables
        .map(|(db, table)| Resource::Table(db, table))
        .try_for_each(|resource| check(cx, Privilege::Read, resource))
}

/// Fails if the caller may not configure a database and every table in it, according to `catalog`.
pub(crate) fn check_db_and_tables(cx: &Cx, catalog: &Catalog, db: &Database) -> Result<(), EvalError> {
    check_in(cx, catalog, Privilege::Config, Resource::Db(db.config.id))?;
    let tables = db.tables().into_iter().map(|table| Resource::Table(db.config.id, table.config.id));
    tables.into_iter().try_for_each(|resource| check_in(cx, catalog, Privilege::Config, resource))
}

/// Fails in places where a query has no user.
fn check_is_user(cx: &Cx) -> Result<(), EvalError> {
    match &cx.caller {
        Caller::User(_) => Ok(()),
        Caller::None => Err(EvalError::permission("Internal permission error, required `read` permission.")),
    }
}

/// Debug tables are for `admin` only.
fn check_admin(cx: &Cx) -> Result<(), EvalError> {
    if cx.caller.is("admin") {
        return Ok(());
    }
    Err(EvalError::permission("Internal permission error, required `admin` permission."))
}

/// Fails if the caller lacks `privilege` for `resource`.
pub(crate) fn check(cx: &Cx, privilege: Privilege, resource: Resource) -> Result<(), EvalError> {
    check_in(cx, &cx.node().catalog_guard(), privilege, resource)
}

/// Fails if the caller lacks `privilege` for `resource` according to `catalog`, for a change that is based on it.
pub(crate) fn check_in(
    cx: &Cx,
    catalog: &Catalog,
    privilege: Privilege,
    resource: Resource,
) -> Result<(), EvalError> {
    match &cx.caller {
        Caller::User(user) => check_user(catalog, user, privilege, resource),
        Caller::None => Err(EvalError::permission(format!(
            "Internal permission error, required `{}` permission.",
            privilege.name()
        ))),
    }
}

/// Fails if `user` lacks `privilege` for `resource`.
pub(crate) fn check_user(
    catalog: &Catalog,
    user: &str,
    privilege: Privilege,
    resource: Resource,
) -> Result<(), EvalError> {
    if user == "admin" {
        return Ok(());
    }
    let flags: &[Flag] = match privilege {
        Privilege::Read => &[|granted| granted.read],
        Privilege::Write => &[|granted| granted.read, |granted| granted.write],
        Privilege::Config => &[|granted| granted.config],
        Privilege::Connect => &[|granted| granted.connect],
    };
    if flags.iter().all(|flag| has(catalog, user, resource, *flag)) {
        return Ok(());
    }
    let name = privilege.name();
    Err(EvalError::permission(format!("User `{user}` does not have the required `{name}` permission.")))
}

/// Selects one of the permissions.
type Flag = fn(&Permissions) -> Option<bool>;

fn has(catalog: &Catalog, user: &str, resource: Resource, flag: Flag) -> bool {
    let scopes = match resource {
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

/// The scope around a database; the system database has none.
fn global(db: DbId) -> Option<Scope> {
    (db != system_db_id()).then_some(Scope::Global)
}
