//! The datum itself: a small, cheaply cloned value.

use std::sync::Arc;

use crate::{Bytes, Kind, Object, Text, Time};

/// One ReQL value. A clone copies a word or two and bumps a reference count at most.
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug, Default)]
pub struct Array(Arc<Vec<Datum>>);

impl Array {
    /// The items, copied only if another array shares them.
    #[must_use]
    pub fn into_vec(self) -> Vec<Datum> {
        Arc::try_unwrap(self.0).unwrap_or_else(|shared| (*shared).clone())
    }
}

impl From<Vec<Datum>> for Array {
    fn from(items: Vec<Datum>) -> Self {
        Array(Arc::new(items))
    }
}

impl std::ops::Deref for Array {
    type Target = [Datum];
    fn deref(&self) -> &[Datum] {
        &self.0
    }
}

impl FromIterator<Datum> for Array {
    fn from_iter<I: IntoIterator<Item = Datum>>(items: I) -> Self {
        Array::from(items.into_iter().collect::<Vec<_>>())
    }
}

impl Datum {
    /// The kind, whose name is what `type_of` answers.
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

    /// Only `false` and `null` are false.
    #[must_use]
    pub fn is_truthy(&self) -> bool {
        !matches!(self, Datum::Null | Datum::Bool(false))
    }

    /// An empty array.
    #[must_use]
    pub fn empty_array() -> Datum {
        Datum::Array(Array::default())
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
