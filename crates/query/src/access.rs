//! What a user may do. Every term that reads, writes or configures asks here first.
//!
//! `admin` may do everything. Others may do what they were granted: the word of the narrowest
//! scope counts, table before database before everything, and no word at all means no. The system
//! database is not part of everything: it must be granted itself.

use cluster::{Catalog, DbId, Permissions, Scope};
use reql::EvalError;
use storage::TableId;

use crate::context::Cx;
use crate::ids::{system_db_id, system_table_id};
use crate::table::TableRef;

/// What is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Reading rows.
    Read,
    /// Writing rows, which takes reading them.
    Write,
    /// Creating, dropping and configuring.
    Config,
    /// Reaching out to the web.
    Connect,
}

/// Where it is about to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The whole cluster.
    Cluster,
    /// One database.
    Db(DbId),
    /// One table.
    Table(DbId, TableId),
}

impl Place {
    /// The place of a table.
    pub fn of_table(table: &TableRef) -> Place {
        match table {
            TableRef::Stored(stored) => Place::Table(stored.handle.db.id, stored.handle.config.id),
            TableRef::System(system) => Place::Table(system_db_id(), system_table_id(system.table.name())),
        }
    }
}

/// Fails if the user of `cx` may not do `need` at `place`.
pub(crate) fn check(cx: &Cx, need: Need, place: Place) -> Result<(), EvalError> {
    check_user(&cx.node().catalog_guard(), &cx.user, need, place)
}

/// Fails if `user` may not do `need` at `place`.
pub(crate) fn check_user(catalog: &Catalog, user: &str, need: Need, place: Place) -> Result<(), EvalError> {
    if user == "admin" {
        return Ok(());
    }
    let flags: &[(&str, Flag)] = match need {
        Need::Read => &[("read", |granted| granted.read)],
        Need::Write => &[("read", |granted| granted.read), ("write", |granted| granted.write)],
        Need::Config => &[("config", |granted| granted.config)],
        Need::Connect => &[("connect", |granted| granted.connect)],
    };
    match flags.iter().find(|(_, flag)| !has(catalog, user, place, *flag)) {
        None => Ok(()),
        Some((name, _)) => Err(EvalError::permission(format!(
            "User `{user}` does not have the required `{name}` permission."
        ))),
    }
}

/// One of the permissions.
type Flag = fn(&Permissions) -> Option<bool>;

fn has(catalog: &Catalog, user: &str, place: Place, flag: Flag) -> bool {
    let scopes = match place {
        Place::Cluster => [Some(Scope::Global), None, None],
        Place::Db(db) => [Some(Scope::Database(db)), global(db), None],
        Place::Table(db, table) => [Some(Scope::Table(db, table)), Some(Scope::Database(db)), global(db)],
    };
    let said = |scope: Scope| {
        let granted = catalog.grants().iter().find(|grant| grant.user == user && grant.scope == scope);
        granted.and_then(|grant| flag(&grant.permissions))
    };
    scopes.into_iter().flatten().find_map(said).unwrap_or(false)
}

/// The scope around a database: the system database has none.
fn global(db: DbId) -> Option<Scope> {
    (db != system_db_id()).then_some(Scope::Global)
}
