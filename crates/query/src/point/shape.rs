//! The shapes of queries that the fast path knows.

use datum::Datum;
use reql::wire::Query;
use reql::{Call, Op, Term};

/// A table by name.
#[derive(Clone, Copy)]
pub(super) struct TableName<'a> {
    /// The database, if the query names it here.
    pub db: Option<&'a str>,
    /// The table.
    pub name: &'a str,
}

/// A row by its primary key.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    /// Its table.
    pub table: TableName<'a>,
    /// Its key.
    pub key: &'a Datum,
}

/// The options of the whole query that matter here.
#[derive(Clone, Copy, Default)]
pub(super) struct Options<'a> {
    /// The database of tables that do not name one.
    pub db: Option<&'a str>,
    /// The durability of writes.
    pub durability: Option<&'a str>,
}

impl<'a> Options<'a> {
    /// The options of `query`, unless there is one that the long way must look at.
    pub fn of(query: &'a Query) -> Option<Options<'a>> {
        let mut options = Options::default();
        for (name, term) in &query.optargs {
            match (name.as_ref(), term) {
                ("db", Term::Call(call)) => options.db = Some(db_name(call)?),
                ("durability", Term::Datum(Datum::String(text))) => options.durability = Some(text),
                ("read_mode", term) if is_read_mode(term) => {}
                ("noreply" | "time_format" | "binary_format" | "group_format", Term::Datum(_)) => {}
                _ => return None,
            }
        }
        Some(options)
    }
}

impl<'a> Row<'a> {
    /// `table.get(key)` with a key that is written out.
    pub fn of(term: &'a Term) -> Option<Row<'a>> {
        let call = term.as_call().filter(|call| call.op == Op::Get)?;
        match call.args.as_slice() {
            [table, Term::Datum(key)] => Some(Row { table: TableName::of(table)?, key }),
            _ => None,
        }
    }
}

impl<'a> TableName<'a> {
    /// `table(name)` or `db(name).table(name)` with names that are written out.
    pub fn of(term: &'a Term) -> Option<TableName<'a>> {
        let call = term.as_call().filter(|call| call.op == Op::Table)?;
        if !call.optargs.iter().all(|(name, term)| name == "read_mode" && is_read_mode(term)) {
            return None;
        }
        match call.args.as_slice() {
            [Term::Datum(Datum::String(name))] => Some(TableName { db: None, name }),
            [Term::Call(db), Term::Datum(Datum::String(name))] => {
                Some(TableName { db: Some(db_name(db)?), name })
            }
            _ => None,
        }
    }
}

fn db_name(call: &Call) -> Option<&str> {
    match (call.op, call.args.as_slice()) {
        (Op::Db, [Term::Datum(Datum::String(name))]) => Some(name),
        _ => None,
    }
}

fn is_read_mode(term: &Term) -> bool {
    matches!(term, Term::Datum(Datum::String(mode)) if matches!(mode.as_ref(), "single" | "majority" | "outdated"))
}
