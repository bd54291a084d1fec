//! Keys of secondary indexes: longer values are cut, and NUL bytes are allowed.

use super::encode::{ARRAY, BINARY, END, FALSE, NUMBER, STRING, TIME, TRUE, ordered_number, write_escaped};
use super::error::KeyError;
use crate::{Bytes, Datum, deep};

/// Bytes kept of a longer key. Equal prefixes are told apart by looking at the row.
const BYTES_MAX: usize = 192;

/// The ordered bytes of an index value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecondaryKey {
    /// Bytes in the order of the values; self-delimiting unless truncated.
    pub bytes: Bytes,
    /// Whether the value was longer, so that different values may have these bytes.
    pub truncated: bool,
}

/// The index key of `value`, if an index can hold it.
///
/// Source: reql reference 4.2.
pub fn encode(value: &Datum) -> Result<SecondaryKey, KeyError> {
    let mut out = Vec::with_capacity(32);
    match value {
        Datum::Geometry(_) => return Err(KeyError::Geometry),
        Datum::MinVal | Datum::MaxVal => return Err(KeyError::Bound),
        Datum::Null | Datum::Object(_) => return Err(KeyError::SecondaryKind(value.clone())),
        _ => write(value, &mut out)?,
    }
    let truncated = out.len() > BYTES_MAX;
    out.truncate(BYTES_MAX);
    Ok(SecondaryKey { bytes: Bytes::from(out), truncated })
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
        Datum::MinVal | Datum::MaxVal => return Err(KeyError::Bound),
        Datum::Null | Datum::Object(_) => return Err(KeyError::ItemKind(value.clone())),
    }
    Ok(())
}

fn write_bytes(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    write_escaped(&bytes[..bytes.len().min(BYTES_MAX)], out);
    out.push(END);
}
