//! Values of terms: data, and values that are no data.

use serde_json::Value as Json;

use super::scope::Scope;
use crate::fault::Out;
use crate::value::Val;

#[derive(Clone, Debug)]
pub enum TermValue {
    Datum(Val),
    /// A row of a table, or null.
    Row(String, Val),
    /// A table or a part of one.
    Table(Slice),
    /// A sequence that is read item by item.
    Seq(Seq),
    Groups(Groups),
    /// A function.
    Func(Func),
    /// A database.
    Db,
}

/// A table, bounds on an index of it, an order.
#[derive(Clone, Debug)]
pub struct Slice {
    pub table: String,
    /// The index that was named.
    pub index: Option<String>,
    /// `between`: both bounds and whether they belong to it.
    pub bounds: Option<[(Val, bool); 2]>,
    /// `order_by`: whether the order is descending.
    pub descends: Option<bool>,
}

impl Slice {
    /// Whether it is the whole table without an order.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.index.is_none() && self.bounds.is_none() && self.descends.is_none()
    }

    /// Whether no value can be within the bounds: the index is not read then.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bounds.as_ref().is_some_and(|[(left, left_closed), (right, right_closed)]| {
            left > right || (left == right && !(*left_closed && *right_closed))
        })
    }

    /// Whether the bounds exclude nothing: from an open `minval` to an open `maxval`.
    #[must_use]
    pub fn is_all(&self) -> bool {
        matches!(self.bounds, None | Some([(Val::MinVal, false), (Val::MaxVal, false)]))
    }
}

/// A sequence. An error is at the position where reading it fails.
#[derive(Clone, Debug)]
pub struct Seq {
    /// The table of its items, if these are still rows.
    pub table: Option<String>,
    /// Whether it was read as a whole: SELECTION<ARRAY>.
    pub eager: bool,
    /// Whether there are always more.
    pub infinite: bool,
    /// Whether these are made of unordered rows: the items of one row may be apart then.
    pub interleaved: bool,
    pub items: Vec<Out<Val>>,
}

impl Seq {
    #[must_use]
    pub fn stream(items: Vec<Out<Val>>) -> Seq {
        Seq { table: None, eager: false, infinite: false, interleaved: false, items }
    }
}

/// Groups by key, in the order of the keys.
#[derive(Clone, Debug)]
pub enum Groups {
    /// Items that were not read yet; an error of grouping fails the reader.
    Lazy(Out<Vec<(Val, Vec<Out<Val>>)>>),
    /// One value per group.
    Ready(Vec<(Val, Val)>),
}

/// A function.
#[derive(Clone, Debug)]
pub enum Func {
    /// Parameters, body, and the variables around it.
    Code(Vec<i64>, Json, Scope),
    /// The field of that name.
    Field(Val),
    /// The same result for every argument.
    Constant(Val),
}

impl Func {
    /// The number of declared parameters.
    #[must_use]
    pub fn arity(&self) -> usize {
        match self {
            Func::Code(params, ..) => params.len(),
            Func::Field(_) => 1,
            Func::Constant(_) => 0,
        }
    }
}

impl TermValue {
    /// The result of `type_of`.
    #[must_use]
    pub fn type_of(&self) -> &'static str {
        match self {
            TermValue::Datum(datum) => datum.type_name(),
            TermValue::Row(..) => "SELECTION<OBJECT>",
            TermValue::Table(slice) if slice.index.is_none() => "TABLE",
            TermValue::Table(_) => "TABLE_SLICE",
            TermValue::Seq(Seq { table: Some(_), eager: true, .. }) => "SELECTION<ARRAY>",
            TermValue::Seq(Seq { table: Some(_), .. }) => "SELECTION<STREAM>",
            TermValue::Seq(_) => "STREAM",
            TermValue::Groups(Groups::Lazy(_)) => "GROUPED_STREAM",
            TermValue::Groups(Groups::Ready(_)) => "GROUPED_DATA",
            TermValue::Func(_) => "FUNCTION",
            TermValue::Db => "DB",
        }
    }
}
