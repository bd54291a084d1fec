//! Primary keys: what may be one, its bytes, and where other values lie among them.

use super::decode::{self, CorruptKey};
use super::encode::{
    ARRAY, BINARY, END, FALSE, NUMBER, STRING, TIME, TRUE, keyless_tag, ordered_number, write_escaped,
};
use super::error::KeyError;
use crate::{Bytes, Datum, deep, number};

/// Longest key in RethinkDB's encoding, which decides what is a legal key.
const REFERENCE_BYTES_MAX: usize = 128;
/// An array that is longer than this is not looked at further.
const REFERENCE_BYTES_ENOUGH: usize = 250;
/// Bytes of a string that a message about it shows.
const SHOWN_BYTES: usize = 20;

/// The bytes of a primary key. Their order is the order of the values they stand for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrimaryKey(pub Bytes);

impl PrimaryKey {
    /// The key of `value`, if it may be one.
    ///
    /// The length limit is RethinkDB's, counted in its encoding: docs/formats/key.md.
    pub fn encode(value: &Datum) -> Result<PrimaryKey, KeyError> {
        // Room for no more than will be there: bytes with room to spare are shared by way of another allocation.
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
                // Far from the limit, whatever the value.
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

    /// The value of this key; `null`, which has no key, for bytes that are not one. A time comes
    /// back in UTC: its zone is not part of the key.
    #[must_use]
    pub fn decode(&self) -> Datum {
        self.try_decode().unwrap_or(Datum::Null)
    }

    /// The value of this key, or that its bytes are not a key.
    pub fn try_decode(&self) -> Result<Datum, CorruptKey> {
        decode::primary(&self.0)
    }

    /// The bytes.
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

/// Where `value` lies among primary keys: its key if it has one, else bytes that no key has, after
/// all keys of smaller values and before all keys of greater ones.
///
/// The bounds, nulls, objects and keys that are too long all have a place.
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
            write_place(other, &mut out);
        }
    }
    PrimaryKey(Bytes::from(out))
}

/// Fails if `value` cannot bound a range of primary keys: for what no key has in it, the bounds aside.
///
/// Of an array no more is looked at than RethinkDB does, which is not all of a long one.
pub fn check_bound(value: &Datum) -> Result<(), KeyError> {
    match value {
        Datum::Array(items) => check_items(items, &mut 0),
        Datum::String(text) => without_nul(text).map(drop),
        Datum::Geometry(_) => Err(KeyError::Geometry),
        Datum::Null | Datum::Object(_) => Err(KeyError::PrimaryKind(value.clone())),
        _ => Ok(()),
    }
}

/// Fails for the first item that no bound may have; adds what was looked at to the length so far.
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

/// No key is nearly as long.
const KEY_BYTES_MAX: usize = 1 << 16;

/// Whether bytes were written that no key has, which decides every comparison with keys.
#[derive(PartialEq, Eq)]
enum Place {
    Key,
    BetweenKeys,
}

fn write_place(value: &Datum, out: &mut Vec<u8>) -> Place {
    match value {
        Datum::Array(items) => deep::level(|| {
            out.push(ARRAY);
            for item in items.iter() {
                // What follows decides nothing.
                if out.len() > KEY_BYTES_MAX || write_place(item, out) == Place::BetweenKeys {
                    return Place::BetweenKeys;
                }
            }
            out.push(END);
            Place::Key
        }),
        Datum::String(text) => {
            out.push(STRING);
            let bytes = text.as_bytes();
            let nul = bytes.iter().position(|&b| b == 0);
            out.extend_from_slice(&bytes[..nul.unwrap_or(bytes.len())]);
            out.push(END);
            if nul.is_none() {
                return Place::Key;
            }
            // After every key with the text before the NUL, whatever follows it there.
            out.push(u8::MAX);
            Place::BetweenKeys
        }
        Datum::MinVal | Datum::MaxVal | Datum::Null | Datum::Object(_) | Datum::Geometry(_) => {
            out.push(keyless_tag(value.kind()));
            Place::BetweenKeys
        }
        Datum::Bool(_) | Datum::Number(_) | Datum::Binary(_) | Datum::Time(_) => {
            write_scalar(value, out);
            Place::Key
        }
    }
}

/// Appends the items of an array key, and adds the length of the whole in RethinkDB's encoding.
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

/// Appends an item of an array key so that another may follow, and adds its length in RethinkDB's encoding.
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

/// Appends a value that needs no checking.
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

/// The length of an item that is no array in RethinkDB's encoding.
fn item_len(item: &Datum) -> usize {
    match item {
        Datum::Bool(_) => "Bt".len(),
        Datum::Number(number) => number_len(*number),
        Datum::Time(time) => "PTIME:".len() + number_len(time.epoch_seconds),
        Datum::Binary(bytes) => binary_len(bytes),
        Datum::String(text) => "S".len() + text.len(),
        // The bounds have a letter.
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

/// Bytes of a string for a message: printable ASCII as it is, the rest escaped.
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
