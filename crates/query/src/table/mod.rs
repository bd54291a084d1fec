//! Tables as queries refer to them: stored tables with shards, and system tables.

pub(crate) mod access;
mod failure;
mod ids;
mod order;
mod sizes;

use std::sync::Arc;

use cluster::{IndexConfig, ServerId, TableHandle};
use datum::{Datum, Object, Text};
use reql::EvalError;

use crate::context::Cx;
use crate::routing::ReadMode;

pub(crate) use access::{Privilege, Resource};
pub(crate) use failure::{admin_failed, index_failed, key_error, read_failed, write_failed};
pub(crate) use ids::{SYSTEM_TABLES, system_db_id, system_table_id};
pub(crate) use order::{
    BucketPosition, BucketedItem, BucketedItems, IndexItems, IndexRead, IndexSearch, KeyOrder, Placed,
    PlacedItems, are_interleaved, primary_range,
};
pub(crate) use sizes::TableSizes;
pub use sizes::{NamedTableSizes, table_sizes};

/// Whether system tables show names or ids of databases, tables and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identifiers {
    Name,
    /// Ids.
    Uuid,
}

/// A table that a query refers to.
#[derive(Clone)]
pub(crate) enum TableRef {
    /// Rows kept in shards.
    Stored(StoredTable),
    /// Rows computed from the present state of the node.
    System(SystemRef),
}

/// A stored table, and how to read it.
#[derive(Clone)]
pub(crate) struct StoredTable {
    /// Its configuration and shards.
    pub handle: Arc<TableHandle>,
    /// How fresh reads must be.
    pub read_mode: ReadMode,
}

/// How rows of a table are found.
pub(crate) enum Index {
    Primary,
    Secondary(IndexConfig),
}

/// A system table, and its format.
#[derive(Clone)]
pub(crate) struct SystemRef {
    pub table: &'static dyn SystemTable,
    /// Whether it shows names or ids.
    pub identifiers: Identifiers,
}

/// The users of a system table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Those with permissions on it or its database.
    Permitted,
    Admin,
    /// Each user, of the rows that the table shows to it.
    All,
}

/// A table of database `rethinkdb`: its rows are computed when they are read.
pub(crate) trait SystemTable: Send + Sync {
    fn name(&self) -> &'static str;

    /// Whether each node has separate rows: see `remote::system_rows`.
    fn is_per_server(&self) -> bool {
        false
    }

    /// Whether its rows depend on the catalog alone: they stay the same while the catalog's version does.
    fn is_of_catalog(&self) -> bool {
        false
    }

    /// Its users.
    fn readers(&self) -> Readers {
        if self.name().starts_with("_debug") { Readers::Admin } else { Readers::Permitted }
    }

    /// Whether its rows are in descending order of their keys when the query asks for no order.
    fn is_ordered(&self) -> bool {
        false
    }

    /// Its rows as this node knows them. Every row has the field `id`.
    fn rows(&self, cx: &Cx, identifiers: Identifiers) -> Result<Vec<Object>, EvalError>;

    /// Called with the rows that another server has sent.
    fn observe_rows(&self, _cx: &Cx, _server: ServerId, _rows: &[Object]) {}

    /// The substitutes for the rows of a server that is connected and did not respond in time.
    fn rows_when_unresponsive(&self, _cx: &Cx, _server: ServerId, _identifiers: Identifiers) -> Vec<Object> {
        Vec::new()
    }

    /// The spelling of a key in the rows, if it has several spellings.
    fn normalized_key(&self, _key: &Datum) -> Option<Datum> {
        None
    }

    /// Carries out the change of one row (`None`: no row); both are the same if it does not change. Most tables refuse.
    fn write(&self, _cx: &Cx, _change: RowEdit<'_>) -> Result<(), EvalError> {
        let why = format!("It's illegal to write to the `rethinkdb.{}` table.", self.name());
        Err(EvalError::op_failed(why))
    }

    /// Called for a write that leaves no row under `key`, where there was none. It may refuse.
    fn write_none(&self, cx: &Cx, _key: &Datum, identifiers: Identifiers) -> Result<(), EvalError> {
        self.write(cx, RowEdit { old: None, new: None, generated_key: false, identifiers })
    }

    /// Whether the row that was just written under `key` is no row, because it sets nothing.
    fn is_row_gone(&self, _cx: &Cx, _key: &Datum) -> bool {
        false
    }
}

/// A write to one row of a system table.
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
    /// The index with this name. If the query's copy of the table has none, waits for the newest catalog: another node
    /// may have created it just before.
    pub fn find_index(&self, cx: &Cx, name: &str) -> Option<IndexConfig> {
        let known = self.handle.config.indexes.find(name).cloned();
        known.or_else(|| cx.retry_with_fresh_catalog(|| self.present_index(cx, name)))
    }

    /// The index with this name in this node's present catalog.
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

    /// The name of its database.
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

    /// The index with this name, for ordering rows. Fails if there is none, or if it is geospatial.
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

    /// As [`TableRef::index_missing`], for reads by an index. Source: `acquire_sindex_for_read` in store.cc of
    /// RethinkDB.
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
