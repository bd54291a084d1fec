//! Primary keys: validation, encoding, and the positions of other values among them.

use super::decode::{self, CorruptKey};
use super::encode::{
    ARRAY, BINARY, END, FALSE, NUMBER, STRING, TIME, TRUE, keyless_tag, ordered_number, write_escaped,
};
use super::error::KeyError;
use crate::{Bytes, Datum, deep, number};

/// Longest key in RethinkDB's encoding, which decides whether a key is legal.
const REFERENCE_BYTES_MAX: usize = 128;
/// Encoding stops at this length: a longer array exceeds the limit in any case.
const REFERENCE_BYTES_ENOUGH: usize = 250;
/// Bytes of a string that an error message quotes.
const SHOWN_BYTES: usize = 20;

/// The bytes of a primary key. They sort like the values they encode.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrimaryKey(pub Bytes);

impl PrimaryKey {
    /// The key of `value`, if it is a legal key.
    ///
    /// The length limit is RethinkDB's, counted in its encoding: docs/formats/key.md.
    pub fn encode(value: &Datum) -> Result<PrimaryKey, KeyError> {
        // Reserves the exact length: sharing a vector with spare capacity costs another allocation.
        let mut out = Vec::with_capacity(match value {
            Datum::String(text) => 1 + text.len(),
            Datum::Binary(bytes) => 1 + bytes.len(),
            Datum::Number(_) | Datum::Time(_) => 1 + size_of::<f64>(),
            _ => 32,
        });
        let reference_len = match value {
            Datum::String(text) => {
                out.push(STRING);
                out.extend_from_slice(without_nul(text)?.as_bytes());
                1 + text.len()
            }
            Datum::Binary(bytes) => {
                out.push(BINARY);
                out.extend_from_slice(bytes);
                binary_len(bytes)
            }
            Datum::Array(items) => {
                let mut reference_len = 0;
                write_array(items, &mut out, &mut reference_len)?;
                reference_len
            }
            Datum::Bool(_) | Datum::Number(_) | Datum::Time(_) => {
                write_scalar(value, &mut out);
                // Far below the limit, whatever the value.
                0
            }
            Datum::Geometry(_) => return Err(KeyError::Geometry),
            other => return Err(KeyError::PrimaryKind(other.clone())),
        };
        if reference_len > REFERENCE_BYTES_MAX {
            return Err(KeyError::TooLong(value.clone()));
        }
        Ok(PrimaryKey(Bytes::from(out)))
    }

    /// The value of this key, or `null`, which is never a key, if the bytes are not a key. A time is returned in
    /// UTC: its zone is not part of the key.
    #[must_use]
    pub fn decode(&self) -> Datum {
        self.try_decode().unwrap_or(Datum::Null)
    }

    /// The value of this key. Fails if the bytes are not a key.
    pub fn try_decode(&self) -> Result<Datum, CorruptKey> {
        decode::primary(&self.0)
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for PrimaryKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.try_decode() {
            Ok(value) => f.write_str(&value.to_json_string()),
            Err(_) => write!(f, "{:?}", self.0),
        }
    }
}

impl std::fmt::Display for PrimaryKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

/// The position of `value` among primary keys: its key if it has one, otherwise bytes that are not a key and sort
/// after the keys of all smaller values and before the keys of all greater ones.
///
/// `minval`, `maxval`, nulls, objects and keys that are too long all have a position.
#[must_use]
pub fn bound_position(value: &Datum) -> PrimaryKey {
    let mut out = Vec::with_capacity(32);
    match value {
        Datum::String(text) => {
            out.push(STRING);
            out.extend_from_slice(text.as_bytes());
        }
        Datum::Binary(bytes) => {
            out.push(BINARY);
            out.extend_from_slice(bytes);
        }
        other => {
            write_position(other, &mut out);
        }
    }
    PrimaryKey(Bytes::from(out))
}

/// Fails if `value` cannot bound a range of primary keys, because it contains a value other than `minval` and
/// `maxval` that is not allowed in keys.
///
/// Checks only as much of a long array as RethinkDB does.
pub fn check_bound(value: &Datum) -> Result<(), KeyError> {
    match value {
        Datum::Array(items) => check_items(items, &mut 0),
        Datum::String(text) => without_nul(text).map(drop),
        Datum::Geometry(_) => Err(KeyError::Geometry),
        Datum::Null | Datum::Object(_) => Err(KeyError::PrimaryKind(value.clone())),
        _ => Ok(()),
    }
}

/// Fails for the first item that is not allowed in a bound. Adds the length of the checked items to
/// `reference_len`.
fn check_items(items: &[Datum], reference_len: &mut usize) -> Result<(), KeyError> {
    *reference_len += "A".len();
    for item in items {
        if *reference_len >= REFERENCE_BYTES_ENOUGH {
            break;
        }
        match item {
            Datum::Array(items) => deep::level(|| check_items(items, reference_len))?,
            Datum::Null | Datum::Object(_) => return Err(KeyError::ItemKind(item.clone())),
            other => {
                check_bound(other)?;
                *reference_len += item_len(other);
            }
        }
        *reference_len += "\0".len();
    }
    Ok(())
}

/// Far longer than any key.
const KEY_BYTES_MAX: usize = 1 << 16;

/// Whether the written bytes form a key or lie between keys, which decides every comparison with keys.
#[derive(PartialEq, Eq)]
enum Encoded {
    Key,
    BetweenKeys,
}

fn write_position(value: &Datum, out: &mut Vec<u8>) -> Encoded {
    match value {
        Datum::Array(items) => deep::level(|| {
            out.push(ARRAY);
            for item in items.iter() {
                // Later items cannot affect any comparison.
                if out.len() > KEY_BYTES_MAX || write_position(item, out) == Encoded::BetweenKeys {
                    return Encoded::BetweenKeys;
                }
            }
            out.push(END);
            Encoded::Key
        }),
        Datum::String(text) => {
            out.push(STRING);
            let bytes = text.as_bytes();
            let nul = bytes.iter().position(|&b| b == 0);
            out.extend_from_slice(&bytes[..nul.unwrap_or(bytes.len())]);
            out.push(END);
            if nul.is_none() {
                return Encoded::Key;
            }
            // Sorts after every key that begins with the text before the NUL.
            out.push(u8::MAX);
            Encoded::BetweenKeys
        }
        Datum::MinVal | Datum::MaxVal | Datum::Null | Datum::Object(_) | Datum::Geometry(_) => {
            out.push(keyless_tag(value.kind()));
            Encoded::BetweenKeys
        }
        Datum::Bool(_) | Datum::Number(_) | Datum::Binary(_) | Datum::Time(_) => {
            write_scalar(value, out);
            Encoded::Key
        }
    }
}

/// Appends the items of an array key. Adds the length of the whole in RethinkDB's encoding to `reference_len`.
fn write_array(items: &[Datum], out: &mut Vec<u8>, reference_len: &mut usize) -> Result<(), KeyError> {
    out.push(ARRAY);
    *reference_len += "A".len();
    for item in items {
        if *reference_len >= REFERENCE_BYTES_ENOUGH {
            break;
        }
        deep::level(|| write_item(item, out, reference_len))?;
        *reference_len += "\0".len();
    }
    out.push(END);
    Ok(())
}

/// Appends an item of an array key, terminated so that another may follow. Adds its length in RethinkDB's encoding.
fn write_item(item: &Datum, out: &mut Vec<u8>, reference_len: &mut usize) -> Result<(), KeyError> {
    match item {
        Datum::Array(items) => return write_array(items, out, reference_len),
        Datum::String(text) => {
            out.push(STRING);
            out.extend_from_slice(without_nul(text)?.as_bytes());
            out.push(END);
        }
        Datum::Bool(_) | Datum::Number(_) | Datum::Binary(_) | Datum::Time(_) => write_scalar(item, out),
        Datum::Geometry(_) => return Err(KeyError::Geometry),
        other => return Err(KeyError::ItemKind(other.clone())),
    }
    *reference_len += item_len(item);
    Ok(())
}

/// Appends a value that is always legal in a key.
fn write_scalar(value: &Datum, out: &mut Vec<u8>) {
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
        Datum::Binary(bytes) => {
            out.push(BINARY);
            write_escaped(bytes, out);
            out.push(END);
        }
        _ => {}
    }
}

/// The length in RethinkDB's encoding of an item that is not an array.
fn item_len(item: &Datum) -> usize {
    match item {
        Datum::Bool(_) => "Bt".len(),
        Datum::Number(number) => number_len(*number),
        Datum::Time(time) => "PTIME:".len() + number_len(time.epoch_seconds),
        Datum::Binary(bytes) => binary_len(bytes),
        Datum::String(text) => "S".len() + text.len(),
        // `minval` and `maxval` are encoded as one letter.
        _ => 1,
    }
}

fn number_len(number: f64) -> usize {
    "N0123456789abcdef#".len() + number::len_of_20_digits(number)
}

fn binary_len(bytes: &[u8]) -> usize {
    let escaped = bytes.iter().filter(|&&b| b <= 1).count();
    "PBINARY:".len() + bytes.len() + escaped
}

fn without_nul(text: &str) -> Result<&str, KeyError> {
    match text.find('\0') {
        None => Ok(text),
        Some(offset) => {
            let start = &text.as_bytes()[..text.len().min(SHOWN_BYTES)];
            Err(KeyError::NulByte { start: quoted(start), offset })
        }
    }
}

/// Quotes bytes of a string for a message: printable ASCII stays, other bytes are escaped.
fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'\r' => out.push_str("\\r"),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}
