//! Keys of secondary indexes: long values are truncated, and NUL bytes are allowed.

use super::encode::{
    ARRAY, BINARY, END, FALSE, NUMBER, STRING, TIME, TRUE, keyless_tag, ordered_number, write_escaped,
};
use super::error::KeyError;
use crate::{Bytes, Datum, deep};

/// Length to which keys are truncated. Readers compare the rows of keys with equal prefixes.
const BYTES_MAX: usize = 192;

/// The ordered bytes of an index value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecondaryKey {
    /// Bytes in the order of the values; self-delimiting unless truncated.
    pub bytes: Bytes,
    /// Whether the value was longer, so that different values may have these same bytes.
    pub truncated: bool,
}

/// The index key of `value`, if an index can hold it.
///
/// Source: docs/reql-spec.md section 4.2.
pub fn encode(value: &Datum) -> Result<SecondaryKey, KeyError> {
    let mut out = Vec::with_capacity(32);
    match value {
        Datum::Geometry(_) => return Err(KeyError::Geometry),
        Datum::MinVal | Datum::MaxVal | Datum::Null | Datum::Object(_) => {
            return Err(KeyError::SecondaryKind(value.clone()));
        }
        _ => write(value, &mut out)?,
    }
    Ok(cut(out))
}

/// The position of `value` among index keys: its key if it has one, otherwise bytes that no key begins with, which
/// sort after the keys of all smaller values and before the keys of all greater ones.
///
/// `minval` and `maxval` have a position, also as items of an array, and so do objects on their own. Fails for
/// geometries, and for nulls and objects inside an array.
pub fn bound(value: &Datum) -> Result<SecondaryKey, KeyError> {
    let mut out = Vec::with_capacity(32);
    match value {
        Datum::Null | Datum::Object(_) => out.push(keyless_tag(value.kind())),
        _ => {
            write_bound(value, &mut out)?;
        }
    }
    Ok(cut(out))
}

fn cut(mut out: Vec<u8>) -> SecondaryKey {
    let truncated = out.len() > BYTES_MAX;
    out.truncate(BYTES_MAX);
    SecondaryKey { bytes: Bytes::from(out), truncated }
}

/// Whether more bytes may follow: a bound inside an array decides every comparison.
#[derive(PartialEq, Eq)]
enum Encoded {
    Key,
    BetweenKeys,
}

fn write_bound(value: &Datum, out: &mut Vec<u8>) -> Result<Encoded, KeyError> {
    match value {
        Datum::MinVal | Datum::MaxVal => {
            out.push(keyless_tag(value.kind()));
            Ok(Encoded::BetweenKeys)
        }
        Datum::Array(items) => {
            out.push(ARRAY);
            for item in items.iter() {
                if out.len() > BYTES_MAX {
                    return Ok(Encoded::Key);
                }
                if deep::level(|| write_bound(item, out))? == Encoded::BetweenKeys {
                    return Ok(Encoded::BetweenKeys);
                }
            }
            out.push(END);
            Ok(Encoded::Key)
        }
        other => write(other, out).map(|()| Encoded::Key),
    }
}

fn write(value: &Datum, out: &mut Vec<u8>) -> Result<(), KeyError> {
    match value {
        Datum::Bool(value) => out.push(if *value { TRUE } else { FALSE }),
        Datum::Number(number) => {
            out.push(NUMBER);
            out.extend_from_slice(&ordered_number(*number));
        }
        Datum::Time(time) => {
            out.push(TIME);
            out.extend_from_slice(&ordered_number(time.epoch_seconds));
        }
        Datum::String(text) => write_bytes(STRING, text.as_bytes(), out),
        Datum::Binary(bytes) => write_bytes(BINARY, bytes, out),
        Datum::Array(items) => {
            out.push(ARRAY);
            for item in items.iter() {
                if out.len() > BYTES_MAX {
                    return Ok(());
                }
                deep::level(|| write(item, out))?;
            }
            out.push(END);
        }
        Datum::Geometry(_) => return Err(KeyError::Geometry),
        Datum::MinVal | Datum::MaxVal | Datum::Null | Datum::Object(_) => {
            return Err(KeyError::ItemKind(value.clone()));
        }
    }
    Ok(())
}

fn write_bytes(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    write_escaped(&bytes[..bytes.len().min(BYTES_MAX)], out);
    out.push(END);
}
