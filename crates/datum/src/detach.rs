//! Letting go of what a value was read from.

use crate::value::Repr;
use crate::{Bytes, Datum, Object, Text, deep};

impl Datum {
    /// The same value in memory of its own.
    ///
    /// What is read from a stored row is a slice of it, and keeps the row, or the whole batch it
    /// came in, in memory. A value that is kept for long out of many rows is detached first.
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

impl Object {
    /// The same object in memory of its own. See [`Datum::detach`].
    #[must_use]
    pub fn detach(&self) -> Object {
        match &self.0 {
            Repr::Raw(stored) => Object(Repr::Raw(Bytes::copy_from_slice(stored))),
            Repr::Tree(tree) => deep::level(|| {
                let members = tree.0.iter().map(|(key, value)| (Text::from(&**key), value.detach()));
                Object::from_sorted(members.collect())
            }),
        }
    }
}
