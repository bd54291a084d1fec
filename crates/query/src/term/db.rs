//! `db`: a database by name.

use reql::EvalError;

use crate::args::Args;
use crate::context::Cx;
use crate::names::check_name;
use crate::table::SYSTEM_DB;
use crate::value::{DbRef, Value};

/// `db`: the database of that name, which must exist.
pub(crate) fn db(mut args: Args<'_>) -> Result<Value, EvalError> {
    let name = args.string(0)?;
    check_name("Database", &name)?;
    find_db(args.cx, &name).map(Value::Db)
}

/// The database of that name.
pub(crate) fn find_db(cx: &Cx, name: &str) -> Result<DbRef, EvalError> {
    if name == SYSTEM_DB {
        return Ok(DbRef { name: SYSTEM_DB.into(), id: None });
    }
    match cx.node().catalog_guard().database(name) {
        Some(db) => Ok(DbRef { name: db.config.name.clone(), id: Some(db.config.id) }),
        None => Err(EvalError::op_failed(format!("Database `{name}` does not exist."))),
    }
}

/// The database the query works in when a term does not say.
pub(crate) fn default_db(cx: &Cx) -> Result<DbRef, EvalError> {
    let name = cx.default_db.as_deref().unwrap_or("test");
    find_db(cx, name)
}
