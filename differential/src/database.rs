//! Tables of the reference: rows in a map, indexes as functions over them.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value as Json;

use crate::value::Val;

/// All tables.
#[derive(Clone, Debug, Default)]
pub struct Database {
    /// By name; a write copies the table it changes.
    pub tables: BTreeMap<String, Rc<Table>>,
}

#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The field of the primary key.
    pub key: String,
    /// The rows in the order of their keys.
    pub rows: BTreeMap<Val, BTreeMap<String, Val>>,
    /// Secondary indexes by name.
    pub indexes: BTreeMap<String, Index>,
}

/// A secondary index.
#[derive(Clone, Debug)]
pub struct Index {
    /// The FUNC term of its value.
    pub function: Json,
    /// Whether an array makes one entry of each of its items.
    pub multi: bool,
    /// Whether it holds shapes.
    pub geo: bool,
}

/// Whether a value may be (part of) a key.
#[must_use]
pub fn is_key(value: &Val) -> bool {
    match value {
        Val::Bool(_) | Val::Number(_) | Val::Binary(_) | Val::Time(..) | Val::Text(_) => true,
        Val::Array(items) => items.iter().all(is_key),
        _ => false,
    }
}
