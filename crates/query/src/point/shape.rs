//! The shapes of queries on the fast path.

use datum::Datum;
use reql::{Call, Op, Term};

use crate::routing::ReadMode;
use crate::session::Query;

#[derive(Clone, Copy)]
pub(super) struct TableName<'a> {
    /// The database, if the term names it.
    pub db: Option<&'a str>,
    pub name: &'a str,
    /// The read mode, if the term has one.
    pub mode: Option<ReadMode>,
}

/// A row by its primary key.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub table: TableName<'a>,
    pub key: &'a Datum,
}

/// Options of the whole query.
#[derive(Clone, Copy, Default)]
pub(super) struct Options<'a> {
    /// The database of tables without one.
    pub db: Option<&'a str>,
    /// The durability of writes.
    pub durability: Option<&'a str>,
    pub mode: Option<ReadMode>,
}

impl<'a> Options<'a> {
    /// The options of `query`, unless there is one that only the slow path handles.
    pub fn of(query: &'a Query) -> Option<Options<'a>> {
        let mut options = Options::default();
        for (name, term) in &query.options {
            match (name.as_ref(), term) {
                ("db", Term::Call(call)) => options.db = Some(db_name(call)?),
                ("durability", Term::Datum(Datum::String(text))) => options.durability = Some(text),
                ("read_mode", term) => options.mode = Some(read_mode(term)?),
                ("noreply" | "time_format" | "binary_format" | "group_format", Term::Datum(_)) => {}
                _ => return None,
            }
        }
        Some(options)
    }
}

impl<'a> Row<'a> {
    /// `table.get(key)` with a literal key.
    pub fn of(term: &'a Term) -> Option<Row<'a>> {
        let call = term.as_call().filter(|call| call.op == Op::Get)?;
        match call.args.as_slice() {
            [table, Term::Datum(key)] => Some(Row { table: TableName::of(table)?, key }),
            _ => None,
        }
    }
}

impl<'a> TableName<'a> {
    /// `table(name)` or `db(name).table(name)` with literal names.
    pub fn of(term: &'a Term) -> Option<TableName<'a>> {
        let call = term.as_call().filter(|call| call.op == Op::Table)?;
        let mut mode = None;
        for (name, term) in &call.optargs {
            match name.as_ref() {
                "read_mode" => mode = Some(read_mode(term)?),
                _ => return None,
            }
        }
        match call.args.as_slice() {
            [Term::Datum(Datum::String(name))] => Some(TableName { db: None, name, mode }),
            [Term::Call(db), Term::Datum(Datum::String(name))] => {
                Some(TableName { db: Some(db_name(db)?), name, mode })
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

/// A literal read mode; other terms take the slow path.
fn read_mode(term: &Term) -> Option<ReadMode> {
    let Term::Datum(Datum::String(name)) = term else { return None };
    ReadMode::parse(name).ok().filter(|mode| *mode != ReadMode::DebugDirect)
}
