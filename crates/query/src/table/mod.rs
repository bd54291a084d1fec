//! A table as a query names it: stored rows in shards, or a virtual table of the system.

pub(crate) mod access;
mod failure;
mod ids;
mod order;

use std::sync::Arc;

use cluster::{IndexConfig, ServerId, TableHandle};
use datum::{Datum, Object, Text};
use reql::EvalError;

use crate::context::Cx;
use crate::routing::ReadMode;

pub(crate) use access::{Privilege, Resource};
pub(crate) use failure::{admin_failed, index_failed, key_error, read_failed, write_failed};
pub(crate) use ids::{NAMES, system_db_id, system_table_id};
pub(crate) use order::{
    BucketPosition, BucketedItem, BucketedItems, IndexItems, IndexRead, KeyOrder, Placed, PlacedItems,
    Wanted, are_interleaved, primary_range,
};

/// Whether system tables show names or ids of databases, tables and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identifiers {
    /// Names.
    Name,
    /// Ids.
    Uuid,
}

/// A table a query refers to.
#[derive(Clone)]
pub(crate) enum TableRef {
    /// Rows kept in shards.
    Stored(StoredTable),
    /// Rows made up from the present state of the node.
    System(SystemRef),
}

/// A table with rows of its own, and how they are to be read.
#[derive(Clone)]
pub(crate) struct StoredTable {
    /// Its configuration and shards.
    pub handle: Arc<TableHandle>,
    /// How fresh reads must be.
    pub read_mode: ReadMode,
}

/// What a table's rows may be found by.
pub(crate) enum Index {
    /// The primary key.
    Primary,
    /// A secondary index.
    Secondary(IndexConfig),
}

/// A system table, and how it is to show things.
#[derive(Clone)]
pub(crate) struct SystemRef {
    /// The table.
    pub table: &'static dyn SystemTable,
    /// Whether it shows names or ids.
    pub identifiers: Identifiers,
}

/// A table of database `rethinkdb`: rows computed when they are read.
pub(crate) trait SystemTable: Send + Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Whether every node has rows of its own, which are asked for: see `everywhere`.
    fn is_per_server(&self) -> bool {
        false
    }

    /// Whether it is only for debugging: no list shows it, and nobody but `admin` may see its rows.
    fn is_hidden(&self) -> bool {
        self.name().starts_with('_')
    }

    /// Whether its rows come the one with the greatest key first when nobody asks for an order.
    fn is_ordered(&self) -> bool {
        false
    }

    /// Its rows as this node knows them. Every row has the field `id`.
    fn rows(&self, cx: &Cx, identifiers: Identifiers) -> Result<Vec<Object>, EvalError>;

    /// Another server said that these are its rows.
    fn observe_rows(&self, _cx: &Cx, _server: ServerId, _rows: &[Object]) {}

    /// What stands in the place of the rows of another server that is connected and did not answer in time.
    fn rows_when_unresponsive(&self, _cx: &Cx, _server: ServerId, _identifiers: Identifiers) -> Vec<Object> {
        Vec::new()
    }

    /// How its rows spell a key that may be spelt in several ways.
    fn normalized_key(&self, _key: &Datum) -> Option<Datum> {
        None
    }

    /// Carries out the change of one row (`None`: there is none); both are the same when it stays as it is.
    /// Most tables refuse.
    fn write(&self, _cx: &Cx, _change: RowEdit<'_>) -> Result<(), EvalError> {
        let why = format!("It's illegal to write to the `rethinkdb.{}` table.", self.name());
        Err(EvalError::op_failed(why))
    }

    /// Is told of a write that was to leave no row under `key`, where there was none. It may refuse.
    fn write_none(&self, cx: &Cx, _key: &Datum, identifiers: Identifiers) -> Result<(), EvalError> {
        self.write(cx, RowEdit { old: None, new: None, generated_key: false, identifiers })
    }

    /// Whether what was just written under `key` came to nothing, so that there is no row.
    fn is_row_gone(&self, _cx: &Cx, _key: &Datum) -> bool {
        false
    }
}

/// What a write wants to become of one row of a system table.
pub(crate) struct RowEdit<'a> {
    /// The row as it was read.
    pub old: Option<&'a Object>,
    /// The row as it should be.
    pub new: Option<&'a Object>,
    /// Whether the primary key of a new row was generated rather than given.
    pub generated_key: bool,
    /// Whether rows hold names or ids.
    pub identifiers: Identifiers,
}

/// The field that holds the primary key of every system table.
pub(crate) const SYSTEM_PRIMARY_KEY: &str = "id";
/// The database of the system tables.
pub(crate) const SYSTEM_DB: &str = "rethinkdb";

impl StoredTable {
    /// The index of that name. If the query has found a table without one, the catalog is asked once more: another
    /// node may have made it just before.
    pub fn find_index(&self, cx: &Cx, name: &str) -> Option<IndexConfig> {
        let known = self.handle.config.indexes.find(name).cloned();
        known.or_else(|| cx.retry_with_fresh_catalog(|| self.present_index(cx, name)))
    }

    /// The index of that name in the catalog as it is here now.
    pub fn present_index(&self, cx: &Cx, name: &str) -> Option<IndexConfig> {
        let catalog = cx.node().catalog_guard();
        catalog.table_by_id(self.handle.config.id)?.config.indexes.find(name).cloned()
    }
}

impl TableRef {
    /// The table's name.
    pub fn name(&self) -> &str {
        match self {
            TableRef::Stored(table) => &table.handle.config.name,
            TableRef::System(system) => system.table.name(),
        }
    }

    /// The database's name.
    pub fn db_name(&self) -> &str {
        match self {
            TableRef::Stored(table) => &table.handle.db.name,
            TableRef::System(_) => SYSTEM_DB,
        }
    }

    /// The field that holds the primary key.
    pub fn primary_key(&self) -> Text {
        match self {
            TableRef::Stored(table) => table.handle.config.primary_key.clone(),
            TableRef::System(_) => Text::from_static(SYSTEM_PRIMARY_KEY),
        }
    }

    /// The index of that name, by which rows can be ordered. Fails if there is none, or one of shapes.
    pub fn index(&self, cx: &Cx, name: &str) -> Result<Index, EvalError> {
        if self.primary_key() == name {
            return Ok(Index::Primary);
        }
        let found = match self {
            TableRef::Stored(table) => table.find_index(cx, name),
            TableRef::System(_) => None,
        };
        match found {
            None => Err(self.unreadable_index(name)),
            Some(index) if index.kind.is_geo() => Err(EvalError::logic(format!(
                "Index `{name}` is a geospatial index.  Only get_nearest and get_intersecting can use a \
                 geospatial index."
            ))
            .frameless()),
            Some(index) => Ok(Index::Secondary(index)),
        }
    }

    /// ``Index `x` was not found on table `db.t`.``
    pub fn index_missing(&self, index: &str) -> EvalError {
        let stop = if matches!(self, TableRef::System(_)) { "" } else { "." };
        let (db, name) = (self.db_name(), self.name());
        EvalError::op_failed(format!("Index `{index}` was not found on table `{db}.{name}`{stop}"))
    }

    /// As [`TableRef::index_missing`], of an index by which rows are to be read. Source: `acquire_sindex_for_read` in
    /// store.cc of RethinkDB.
    pub fn unreadable_index(&self, index: &str) -> EvalError {
        match self {
            TableRef::Stored(_) => self.index_missing(index).frameless(),
            TableRef::System(_) => self.index_missing(index),
        }
    }

    /// The primary key of a row read from this table.
    pub fn key_of(&self, row: &Datum) -> Result<Datum, EvalError> {
        let primary_key = self.primary_key();
        match row {
            Datum::Object(object) => {
                object.get(&primary_key).ok_or_else(|| EvalError::no_attribute(&primary_key, object))
            }
            other => Err(EvalError::type_error("OBJECT", other)),
        }
    }
}
