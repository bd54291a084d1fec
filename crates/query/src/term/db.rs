//! `db`: a database by name.

use datum::Text;
use reql::EvalError;

use crate::context::Cx;
use crate::table::SYSTEM_DB;
use crate::value::{Args, DbRef, Value, name_at};

/// `db`: the database with this name, which must exist.
pub(crate) fn db(mut args: Args<'_>) -> Result<Value, EvalError> {
    let name = name_at(&mut args, 0, "Database")?;
    find_db(args.cx, &name).map(Value::Db)
}

/// The database with this name.
pub(crate) fn find_db(cx: &Cx, name: &str) -> Result<DbRef, EvalError> {
    if name == SYSTEM_DB {
        return Ok(DbRef { name: SYSTEM_DB.into(), id: None });
    }
    let found = || {
        let catalog = cx.node().catalog_guard();
        catalog.database(name).map(|db| DbRef { name: db.config.name.clone(), id: Some(db.config.id) })
    };
    let missing = || EvalError::op_failed(format!("Database `{name}` does not exist."));
    cx.retry_with_fresh_catalog(found).ok_or_else(missing)
}

/// The database of terms that name none.
pub(crate) fn default_db(cx: &Cx) -> Result<DbRef, EvalError> {
    let name = cx.default_db.as_ref().map_err(Clone::clone)?;
    find_db(cx, name)
}

/// Database and table name in the arguments of a term: both, or only the table name for the default database.
pub(crate) fn db_and_table(args: &mut Args<'_>) -> Result<(DbRef, Text), EvalError> {
    match args.len() {
        1 => Ok((default_db(args.cx)?, name_at(args, 0, "Table")?)),
        _ => Ok((args.db(0)?, name_at(args, 1, "Table")?)),
    }
}
