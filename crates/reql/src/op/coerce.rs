//! `coerce_to` and `binary`: convert a value to another type.

use datum::{Array, Datum, ObjectBuilder, Text, pseudo};

use super::strtod::strtod;
use super::{json, object};
use crate::EvalError;
use crate::args::{Args, finite};

/// Target types, in upper case.
const TARGETS: [&str; 18] = [
    "DB",
    "TABLE",
    "TABLE_SLICE",
    "SELECTION<STREAM>",
    "SELECTION<ARRAY>",
    "STREAM",
    "SELECTION<OBJECT>",
    "DATUM",
    "FUNCTION",
    "GROUPED_DATA",
    "NULL",
    "BINARY",
    "BOOL",
    "NUMBER",
    "STRING",
    "ARRAY",
    "OBJECT",
    "MINVAL",
];

/// `coerce_to`: converts the value to the named type.
pub fn coerce_to(args: &Args<'_>) -> Result<Datum, EvalError> {
    let value = args.datum(0)?;
    let target = target(args.string(1)?)?;
    coerce(value, target, args)
}

/// The name of a type in upper case. Fails if there is no such type.
pub fn target(name: &str) -> Result<&'static str, EvalError> {
    let upper = name.to_ascii_uppercase();
    match TARGETS.iter().chain(&["MAXVAL"]).find(|target| **target == upper) {
        Some(target) => Ok(target),
        None => Err(EvalError::logic(format!("Unknown Type: {upper}"))),
    }
}

fn coerce(value: &Datum, target: &'static str, args: &Args<'_>) -> Result<Datum, EvalError> {
    let source = source_name(value);
    match (value, target) {
        _ if source == target => Ok(value.clone()),
        // Every datum is allowed where a sequence is expected; whether it can be read as one is checked there.
        (_, "DATUM" | "STREAM") => Ok(value.clone()),
        (_, "BOOL") => Ok(Datum::Bool(value.is_truthy())),
        (_, "STRING") => to_text(value).map(Datum::String),
        (Datum::String(text), "BINARY") => Ok(bytes_of(text)),
        (Datum::String(text), "NUMBER") => to_number(text),
        (Datum::Array(items), "OBJECT") => {
            args.env.check_batches()?;
            to_object(items)
        }
        (Datum::Object(_) | Datum::Time(_) | Datum::Geometry(_), "ARRAY") => to_pairs(value, args),
        _ => Err(EvalError::typed(value, format!("Cannot coerce {source} to {target}.")).at(0)),
    }
}

/// The type of `value` in messages. A pseudotype stored as an object counts as an object.
fn source_name(value: &Datum) -> &'static str {
    match value {
        Datum::Binary(_) => "BINARY",
        Datum::Time(_) | Datum::Geometry(_) => "OBJECT",
        other => other.kind().name(),
    }
}

/// A value as a string: a string is unchanged, a binary is read as UTF-8, any other value becomes JSON.
pub fn to_text(value: &Datum) -> Result<Text, EvalError> {
    match value {
        Datum::String(text) => Ok(text.clone()),
        Datum::Binary(bytes) => datum::text_from_bytes(bytes.clone()).map_err(EvalError::logic),
        other => json::text_of(other).map(Text::from),
    }
}

/// Reads up to a NUL, where a C string ends. Source: `coerce_term_t` in terms/type_manip.cc of RethinkDB 2.4.
fn to_number(text: &str) -> Result<Datum, EvalError> {
    let text = text.split_once('\0').map_or(text, |(before, _)| before);
    match strtod(text) {
        Some(number) => finite(number),
        None => Err(EvalError::logic(format!("Could not coerce `{text}` to NUMBER."))),
    }
}

fn to_object(pairs: &Array) -> Result<Datum, EvalError> {
    let mut members = ObjectBuilder::new();
    for pair in pairs.iter() {
        let (key, value) = key_and_value(pair)?;
        if let Some(before) = members.insert(key.clone(), value.clone()) {
            return Err(EvalError::logic(format!(
                "Duplicate key {} in coerced object.  (got {} and {} as values)",
                Datum::String(key.clone()).to_json_string(),
                before.truncated(),
                value.truncated(),
            )));
        }
    }
    object::checked_object(members)
}

/// The parts of a pair; also used for pairs of sequences that are not arrays.
pub fn key_and_value(pair: &Datum) -> Result<(&Text, &Datum), EvalError> {
    let Datum::Array(parts) = pair else { return Err(EvalError::type_error("ARRAY", pair)) };
    match &**parts {
        [Datum::String(key), value] => Ok((key, value)),
        [key, _] => Err(EvalError::type_error("STRING", key)),
        parts => {
            let size = parts.len();
            Err(EvalError::logic(format!("Expected array of size 2, but got size {size}.")))
        }
    }
}

fn to_pairs(value: &Datum, args: &Args<'_>) -> Result<Datum, EvalError> {
    let members = pseudo::to_object(value).unwrap_or_default();
    args.env.check_array(members.len())?;
    let pair = |(key, value)| Datum::from(vec![Datum::String(key), value]);
    Ok(Datum::Array(members.iter().map(pair).collect()))
}

/// `binary`: the bytes of a string; a binary is unchanged.
pub fn binary(args: &Args<'_>) -> Result<Datum, EvalError> {
    match args.datum(0)? {
        Datum::Binary(bytes) => Ok(Datum::Binary(bytes.clone())),
        _ => args.plain_string(0).map(bytes_of),
    }
}

fn bytes_of(text: &Text) -> Datum {
    Datum::Binary(text.as_bytes().clone())
}
