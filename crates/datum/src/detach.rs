//! Copies values out of the memory they were read from.

use crate::value::Repr;
use crate::{Bytes, Datum, Object, Text, deep};

impl Datum {
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

impl Object {
    /// A copy of the object that shares no memory with other values. See [`Datum::detach`].
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
