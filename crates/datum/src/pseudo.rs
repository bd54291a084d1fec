//! Converts between `$reql_type$` objects and the values they represent.

use crate::print::{TYPE_KEY, shape_members};
use crate::value::Repr;
use crate::{Datum, Object, cancel, deep, ptype};

/// The key that makes an object a pseudotype.
pub const KEY: &str = TYPE_KEY;
/// The `$reql_type$` of an object that replaces a value instead of merging into it.
pub const LITERAL: &str = "LITERAL";
/// The member of a literal that holds the replacement; a literal without it removes the value.
pub const LITERAL_VALUE: &str = "value";

/// The value that `object` represents: a time, binary or geometry if it has such a `$reql_type$`, the object itself
/// if it has none or is a literal. Fails with the ReQL message.
pub fn from_object(object: Object) -> Result<Datum, String> {
    if !object.contains_key(TYPE_KEY) {
        return Ok(Datum::Object(object));
    }
    match object.to_tree().0 {
        Repr::Tree(tree) => ptype::read(tree.0.clone()),
        Repr::Raw(_) => Ok(Datum::Object(object)),
    }
}

/// Whether `object` is a literal: `{"$reql_type$":"LITERAL"}` with or without a `value`.
#[must_use]
pub fn is_literal(object: &Object) -> bool {
    // Stored text contains no literals.
    let Repr::Tree(tree) = &object.0 else { return false };
    matches!(tree.find(TYPE_KEY), Some(Datum::String(name)) if *name == LITERAL)
}

/// Whether `value` contains a literal at any depth. Stored text contains none and is skipped.
#[must_use]
pub fn holds_literal(value: &Datum) -> bool {
    match value {
        Datum::Array(items) => {
            cancel::may_continue(items.len()) && deep::level(|| items.iter().any(holds_literal))
        }
        Datum::Object(object) => match &object.0 {
            Repr::Tree(tree) => {
                is_literal(object)
                    || cancel::may_continue(tree.0.len())
                        && deep::level(|| tree.0.iter().any(|(_, value)| holds_literal(value)))
            }
            Repr::Raw(_) => false,
        },
        _ => false,
    }
}

/// The object that a pseudotype is written as; `None` for other values.
#[must_use]
pub fn to_object(value: &Datum) -> Option<Object> {
    match value {
        Datum::Object(object) => Some(object.clone()),
        Datum::Geometry(shape) => Some(Object::from_sorted(shape_members(shape))),
        Datum::Time(time) => Some(Object::from_sorted(vec![
            (TYPE_KEY.into(), Datum::from("TIME")),
            ("epoch_time".into(), Datum::Number(time.epoch_seconds)),
            ("timezone".into(), Datum::from(time.offset_text())),
        ])),
        Datum::Binary(bytes) => {
            let mut text = Vec::new();
            crate::binary::write_base64(bytes, &mut text);
            let text = String::from_utf8(text).unwrap_or_default();
            Some(Object::from_sorted(vec![
                (TYPE_KEY.into(), Datum::from("BINARY")),
                ("data".into(), Datum::from(text)),
            ]))
        }
        _ => None,
    }
}
