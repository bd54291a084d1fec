//! The rows from which a sequence comes, as a changefeed follows them.

use std::collections::BTreeMap;

use datum::{KeyRange, PrimaryKey, Text};
use reql::{Selector, Transform};

use crate::stream::{Pipe, RowSource, Source};
use crate::table::{KeyOrder, StoredTable, SystemRef, TableRef};

/// The rows that a changefeed of a sequence follows, and their steps.
#[derive(Clone)]
pub(crate) enum Origin {
    Rows {
        source: RowSource,
        steps: Vec<Transform>,
    },
    /// Rows under some keys, each as often as its key was named.
    Keys {
        table: StoredTable,
        copies: BTreeMap<PrimaryKey, u32>,
        steps: Vec<Transform>,
    },
    FirstRows(FirstRows),
    /// The distinct values of an index.
    Distinct(RowSource),
    Join(JoinOrigin),
    SystemRows(SystemRows),
    /// Those of several sequences; `None` for one that cannot be followed.
    Union(Vec<Option<Origin>>),
    /// Rows that cannot be followed, and the message that says why.
    Refused(&'static str),
}

/// The first rows of a source.
#[derive(Clone)]
pub(crate) struct FirstRows {
    pub source: RowSource,
    /// The steps between the source and the limit.
    pub steps: Vec<Transform>,
    pub most: usize,
    /// Whether steps follow the limit.
    pub is_transformed: bool,
}

/// The pairs of `eq_join`.
#[derive(Clone)]
pub(crate) struct JoinOrigin {
    pub left: Box<Origin>,
    /// The value of a left item by which right rows are found.
    pub by: Selector,
    pub right: TableRef,
    /// The name of the index of the right table.
    pub index: Text,
    /// The steps after the join.
    pub steps: Vec<Transform>,
}

/// Rows of a system table.
#[derive(Clone)]
pub(crate) struct SystemRows {
    pub system: SystemRef,
    pub keys: SystemKeys,
    pub order: KeyOrder,
    /// Whether these are only the first ones in this order.
    pub is_limited: bool,
    pub steps: Vec<Transform>,
}

/// Which rows of a system table.
#[derive(Clone)]
pub(crate) enum SystemKeys {
    Range(KeyRange),
    /// Each key as often as it was named.
    Copies(BTreeMap<PrimaryKey, usize>),
}

/// The message for the first rows of a sequence without an order.
pub(crate) const UNORDERED: &str = "Cannot get changes on the first elements of an unordered stream.";

impl Origin {
    /// The origin of the items of a pipe; `None` if they cannot be followed.
    pub fn of_pipe(pipe: &Pipe) -> Option<Origin> {
        let steps = pipe.steps.clone();
        match &pipe.source {
            Source::Rows(source) => Some(Origin::Rows { source: source.clone(), steps }),
            Source::Keys(keys) => {
                let (table, copies) = keys.keys();
                Some(Origin::Keys { table, copies, steps })
            }
            Source::Items(_) => None,
        }
    }

    /// The first of these rows.
    pub fn limited(self, most: usize) -> Origin {
        match self {
            Origin::Rows { source, steps } => {
                Origin::FirstRows(FirstRows { source, steps, most, is_transformed: false })
            }
            Origin::FirstRows(first) => Origin::FirstRows(FirstRows { most: first.most.min(most), ..first }),
            Origin::SystemRows(rows) => Origin::SystemRows(SystemRows { is_limited: true, ..rows }),
            // Of an empty range nothing is left in any order.
            Origin::Keys { ref copies, .. } if copies.is_empty() => self,
            Origin::Keys { .. } | Origin::Join(_) => Origin::Refused(UNORDERED),
            Origin::Distinct(_) => Origin::Refused("Cannot call `changes` on a slice of distinct values."),
            Origin::Union(_) => Origin::Refused("Cannot call `changes` on a slice of a union."),
            refused @ Origin::Refused(_) => refused,
        }
    }

    /// The rows in words, for messages.
    pub fn description(&self) -> &'static str {
        match self {
            Origin::Rows { .. } | Origin::Keys { .. } => "rows of a table",
            Origin::FirstRows(_) => "the first rows of an order",
            Origin::Distinct(_) => "distinct values",
            Origin::Join(_) => "a join",
            Origin::SystemRows(_) => "a system table",
            Origin::Union(_) => "a union",
            Origin::Refused(_) => "this sequence",
        }
    }

    /// Adds a step.
    pub fn then(self, step: &Transform) -> Origin {
        let with = |mut steps: Vec<Transform>| {
            steps.push(step.clone());
            steps
        };
        match self {
            Origin::Rows { source, steps } => Origin::Rows { source, steps: with(steps) },
            Origin::Keys { table, copies, steps } => Origin::Keys { table, copies, steps: with(steps) },
            Origin::FirstRows(first) => Origin::FirstRows(FirstRows { is_transformed: true, ..first }),
            Origin::Distinct(_) => Origin::Refused("Cannot call `changes` on transformed distinct values."),
            Origin::Join(join) => Origin::Join(JoinOrigin { steps: with(join.steps), ..join }),
            Origin::SystemRows(rows) => {
                Origin::SystemRows(SystemRows { steps: with(rows.steps.clone()), ..rows })
            }
            Origin::Union(parts) => {
                Origin::Union(parts.into_iter().map(|part| Some(part?.then(step))).collect())
            }
            refused @ Origin::Refused(_) => refused,
        }
    }
}

impl SystemRows {
    /// How often a row with this key is among them.
    pub fn times(&self, key: &PrimaryKey) -> usize {
        match &self.keys {
            SystemKeys::Range(range) => usize::from(range.contains(key)),
            SystemKeys::Copies(copies) => copies.get(key).copied().unwrap_or(0),
        }
    }
}
