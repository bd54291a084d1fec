//! The secondary indexes of a table, as the catalog stores them.

use datum::{Datum, Object, Text};
use reql::StoredFunc;
use reql::cost::Cost;
use shard::{IndexDef, IndexDefs, IndexId, IndexKind};

/// The configuration of one secondary index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexConfig {
    /// Its id, part of the key of every entry; never reused in this table.
    pub id: IndexId,
    /// Its present name, unique among the table's indexes.
    pub name: Text,
    /// The function that computes its values from a row.
    pub function: StoredFunc,
    /// Whether it is a multi index, and whether it is a geospatial one.
    pub kind: IndexKind,
}

/// The secondary indexes of a table, and the ids they have used up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableIndexes {
    /// The highest id assigned so far. The stored name of the field is `given`.
    pub(crate) given: u32,
    pub(crate) list: Vec<IndexConfig>,
}

impl TableIndexes {
    /// All indexes, in order of name.
    #[must_use]
    pub fn all(&self) -> Vec<&IndexConfig> {
        let mut all: Vec<_> = self.list.iter().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The highest cost of an index function: how expensive it can be to compute the entries of one row.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.list.iter().map(|index| index.function.cost()).max().unwrap_or(Cost::Brief)
    }

    #[must_use]
    pub fn find(&self, name: &str) -> Option<&IndexConfig> {
        self.list.iter().find(|index| index.name == name)
    }

    /// Whether an index with this id existed and was dropped.
    pub(crate) fn was_dropped(&self, id: IndexId) -> bool {
        id <= IndexId(self.given) && !self.list.iter().any(|index| index.id == id)
    }

    pub(crate) fn add(&mut self, name: Text, function: StoredFunc, kind: IndexKind) {
        self.given += 1;
        self.list.push(IndexConfig { id: IndexId(self.given), name, function, kind });
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<IndexConfig> {
        let at = self.list.iter().position(|index| index.name == name)?;
        Some(self.list.remove(at))
    }

    /// The index definitions that shards need.
    #[must_use]
    pub fn defs(&self) -> IndexDefs {
        let def = |index: &IndexConfig| IndexDef::new(index.id, index.kind, &index.function);
        IndexDefs { list: self.list.iter().map(def).collect(), highest_assigned: IndexId(self.given) }
    }

    pub(crate) fn to_datum(&self) -> Datum {
        let object = |fields: Vec<(&'static str, Datum)>| -> Datum {
            let fields = fields.into_iter().map(|(name, value)| (Text::from_static(name), value));
            Datum::Object(fields.collect::<Object>())
        };
        let index = |index: &IndexConfig| {
            let mut fields = vec![
                ("id", Datum::Number(f64::from(index.id.0))),
                ("name", index.name.clone().into()),
                ("function", index.function.text().clone().into()),
                ("multi", index.kind.is_multi().into()),
                ("geo", index.kind.is_geo().into()),
            ];
            let binary = index.function.stored_binary();
            fields.extend(binary.map(|binary| ("binary", Datum::Binary(binary.clone()))));
            object(fields)
        };
        let list: Vec<Datum> = self.list.iter().map(index).collect();
        object(vec![("given", Datum::Number(f64::from(self.given))), ("list", list.into())])
    }

    /// Reads a datum written by [`TableIndexes::to_datum`]; `None` for anything else.
    pub(crate) fn from_datum(datum: &Datum) -> Option<TableIndexes> {
        let Datum::Object(object) = datum else { return None };
        let Some(Datum::Array(list)) = object.get("list") else { return None };
        let index = |index: &Datum| {
            let Datum::Object(index) = index else { return None };
            let (Some(Datum::String(name)), Some(Datum::String(function))) =
                (index.get("name"), index.get("function"))
            else {
                return None;
            };
            let function = StoredFunc::parse(function).ok()?;
            let function = match index.get("binary") {
                Some(Datum::Binary(binary)) => function.with_binary(binary),
                _ => function,
            };
            let kind = match (index.get("multi")?, index.get("geo")) {
                (Datum::Bool(multi), Some(Datum::Bool(geo))) => IndexKind::of(multi, geo),
                // Written by a version without geospatial indexes.
                (Datum::Bool(multi), None) => IndexKind::of(multi, false),
                _ => return None,
            };
            Some(IndexConfig { id: IndexId(number(&index.get("id")?)?), name, function, kind })
        };
        let list = list.iter().map(index).collect::<Option<_>>()?;
        Some(TableIndexes { given: number(&object.get("given")?)?, list })
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked to be a u32
fn number(datum: &Datum) -> Option<u32> {
    match datum {
        Datum::Number(n) if *n >= 0.0 && n.fract() == 0.0 && *n <= f64::from(u32::MAX) => Some(*n as u32),
        _ => None,
    }
}
