//! The datum: a small value that is cheap to clone.

use std::sync::Arc;

use crate::deep;
use crate::kind::Kind;
use crate::time::Time;
use crate::{Bytes, Text};

/// A ReQL value. A clone copies a word or two and increments at most one reference count.
#[derive(Clone)]
pub enum Datum {
    /// Below every other value; cannot be stored or sent.
    MinVal,
    /// Above every other value; cannot be stored or sent.
    MaxVal,
    /// The absent value.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A finite IEEE double.
    Number(f64),
    /// UTF-8 text, possibly a slice of a stored row.
    String(Text),
    /// A sequence of datums.
    Array(Array),
    /// Unique keys in byte order, possibly still a stored row's text.
    Object(Object),
    /// Bytes (`PTYPE<BINARY>`).
    Binary(Bytes),
    /// An instant with a zone (`PTYPE<TIME>`).
    Time(Time),
    /// A shape (`PTYPE<GEOMETRY>`), as its object without `$reql_type$`.
    Geometry(Object),
}

/// A shared, immutable sequence of datums.
#[derive(Clone, Default)]
pub struct Array(Arc<Items>);

#[derive(Default)]
struct Items(Vec<Datum>);

impl Drop for Items {
    fn drop(&mut self) {
        // Runs only for the last owner. Frees a deep value level by level, without recursion.
        if !self.0.is_empty() {
            match deep::has_stack() {
                true => self.0.clear(),
                false => free(std::mem::take(&mut self.0)),
            }
        }
    }
}

impl Array {
    /// The items, copied only if another array shares them.
    #[must_use]
    pub fn into_vec(self) -> Vec<Datum> {
        match Arc::try_unwrap(self.0) {
            Ok(mut items) => std::mem::take(&mut items.0),
            Err(shared) => shared.0.clone(),
        }
    }
}

impl Array {
    /// Whether both share the same memory.
    pub(crate) fn is_same(&self, other: &Array) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl From<Vec<Datum>> for Array {
    fn from(items: Vec<Datum>) -> Self {
        Array(Arc::new(Items(items)))
    }
}

impl std::ops::Deref for Array {
    type Target = [Datum];
    fn deref(&self) -> &[Datum] {
        &self.0.0
    }
}

impl FromIterator<Datum> for Array {
    fn from_iter<I: IntoIterator<Item = Datum>>(items: I) -> Self {
        Array::from(items.into_iter().collect::<Vec<_>>())
    }
}

/// Unique keys in byte order: a tree of values, or the text of a stored row, which is read lazily.
///
/// A clone increments one reference count.
#[derive(Clone)]
pub struct Object(pub(crate) Repr);

#[derive(Clone)]
pub(crate) enum Repr {
    /// Members sorted by key, keys unique.
    Tree(Arc<Members>),
    /// A whole stored row (docs/formats/row.md), validated by `row::decode`, or the canonical JSON text of an
    /// object inside one. The first byte tells them apart: text begins with a brace.
    Raw(Bytes),
}

/// Sorted members of an object.
#[derive(Default)]
pub(crate) struct Members(pub(crate) Vec<(Text, Datum)>);

impl Members {
    /// The value under `key`.
    pub(crate) fn find(&self, key: &str) -> Option<&Datum> {
        let found = self.0.binary_search_by(|(k, _)| k.as_bytes()[..].cmp(key.as_bytes())).ok()?;
        Some(&self.0[found].1)
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            match deep::has_stack() {
                true => self.0.clear(),
                false => free(self.0.drain(..).map(|(_, value)| value).collect()),
            }
        }
    }
}

/// Frees values, and their parts that are not shared, from a list instead of by recursion: a value can have more
/// levels than any stack.
#[cold]
fn free(mut waiting: Vec<Datum>) {
    while let Some(value) = waiting.pop() {
        match value {
            Datum::Array(Array(items)) => {
                if let Some(mut items) = Arc::into_inner(items) {
                    waiting.append(&mut items.0);
                }
            }
            Datum::Object(Object(Repr::Tree(tree))) | Datum::Geometry(Object(Repr::Tree(tree))) => {
                if let Some(mut tree) = Arc::into_inner(tree) {
                    waiting.extend(tree.0.drain(..).map(|(_, value)| value));
                }
            }
            _ => {}
        }
    }
}

impl Object {
    /// Wraps members whose keys are unique and in byte order.
    pub(crate) fn from_sorted(members: Vec<(Text, Datum)>) -> Object {
        debug_assert!(members.is_sorted_by(|a, b| a.0 < b.0), "members are sorted and unique");
        Object(Repr::Tree(Arc::new(Members(members))))
    }
}

impl Datum {
    /// The kind, whose name `type_of` returns.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Datum::MinVal => Kind::MinVal,
            Datum::MaxVal => Kind::MaxVal,
            Datum::Null => Kind::Null,
            Datum::Bool(_) => Kind::Bool,
            Datum::Number(_) => Kind::Number,
            Datum::String(_) => Kind::String,
            Datum::Array(_) => Kind::Array,
            Datum::Object(_) => Kind::Object,
            Datum::Binary(_) => Kind::Binary,
            Datum::Time(_) => Kind::Time,
            Datum::Geometry(_) => Kind::Geometry,
        }
    }

    /// All values but `false` and `null` are true.
    #[must_use]
    pub fn is_truthy(&self) -> bool {
        !matches!(self, Datum::Null | Datum::Bool(false))
    }

    #[must_use]
    pub fn empty_array() -> Datum {
        Datum::Array(Array::default())
    }

    /// A copy of the value that shares no memory with other values.
    ///
    /// A value read from a stored row is a slice of it and keeps the row, or the whole batch the row came in, in
    /// memory. Detach values that are kept for long from many rows.
    #[must_use]
    pub fn detach(&self) -> Datum {
        match self {
            Datum::String(text) => Datum::String(Text::from(&**text)),
            Datum::Binary(bytes) => Datum::Binary(Bytes::copy_from_slice(bytes)),
            Datum::Array(items) => deep::level(|| Datum::Array(items.iter().map(Datum::detach).collect())),
            Datum::Object(object) => Datum::Object(object.detach()),
            Datum::Geometry(shape) => Datum::Geometry(shape.detach()),
            scalar => scalar.clone(),
        }
    }
}

impl From<bool> for Datum {
    fn from(value: bool) -> Self {
        Datum::Bool(value)
    }
}

impl From<f64> for Datum {
    fn from(value: f64) -> Self {
        Datum::Number(value)
    }
}

impl From<i32> for Datum {
    fn from(value: i32) -> Self {
        Datum::Number(f64::from(value))
    }
}

impl From<&str> for Datum {
    fn from(value: &str) -> Self {
        Datum::String(Text::from(value))
    }
}

impl From<String> for Datum {
    fn from(value: String) -> Self {
        Datum::String(Text::from(value))
    }
}

impl From<Text> for Datum {
    fn from(value: Text) -> Self {
        Datum::String(value)
    }
}

impl From<Vec<Datum>> for Datum {
    fn from(items: Vec<Datum>) -> Self {
        Datum::Array(Array::from(items))
    }
}

impl From<Array> for Datum {
    fn from(items: Array) -> Self {
        Datum::Array(items)
    }
}

impl From<Object> for Datum {
    fn from(object: Object) -> Self {
        Datum::Object(object)
    }
}
