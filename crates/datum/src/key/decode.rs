//! Decodes the ordered bytes of keys into values.

use super::encode::{ARRAY, BINARY, END, ESCAPE, FALSE, NUMBER, STRING, TIME, TRUE, number_of};
use crate::{Bytes, Datum, Text, Time, deep};

/// The bytes are not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes are not a key")]
pub struct CorruptKey;

/// The value of a whole primary key.
pub(super) fn primary(key: &Bytes) -> Result<Datum, CorruptKey> {
    match key.first() {
        // At the top level, text and bytes extend to the end of the key.
        Some(&STRING) => text(key.slice(1..)),
        Some(&BINARY) => Ok(Datum::Binary(key.slice(1..))),
        _ => {
            let mut at = 0;
            let value = item(key, &mut at)?;
            if at == key.len() { Ok(value) } else { Err(CorruptKey) }
        }
    }
}

fn item(key: &Bytes, at: &mut usize) -> Result<Datum, CorruptKey> {
    let tag = *key.get(*at).ok_or(CorruptKey)?;
    *at += 1;
    match tag {
        FALSE => Ok(Datum::Bool(false)),
        TRUE => Ok(Datum::Bool(true)),
        NUMBER => Ok(Datum::Number(number(key, at)?)),
        TIME => time(number(key, at)?),
        STRING => text(key.slice(until_end(key, at)?)),
        BINARY => Ok(Datum::Binary(unescape(&key[until_end(key, at)?])?)),
        ARRAY => deep::level(|| array(key, at)),
        _ => Err(CorruptKey),
    }
}

fn array(key: &Bytes, at: &mut usize) -> Result<Datum, CorruptKey> {
    let mut items = Vec::new();
    while *key.get(*at).ok_or(CorruptKey)? != END {
        items.push(item(key, at)?);
    }
    *at += 1;
    Ok(Datum::from(items))
}

/// A time; its seconds were rounded before they were encoded.
fn time(seconds: f64) -> Result<Datum, CorruptKey> {
    let time = Time::new(seconds, 0);
    if time.epoch_seconds == seconds { Ok(Datum::Time(time)) } else { Err(CorruptKey) }
}

fn text(bytes: Bytes) -> Result<Datum, CorruptKey> {
    let text = Text::try_from(bytes).map_err(|_| CorruptKey)?;
    if text.contains('\0') { Err(CorruptKey) } else { Ok(Datum::String(text)) }
}

fn number(key: &[u8], at: &mut usize) -> Result<f64, CorruptKey> {
    let bytes = key.get(*at..*at + 8).ok_or(CorruptKey)?;
    *at += 8;
    let number = number_of(bytes.try_into().map_err(|_| CorruptKey)?);
    // The encoder only writes finite numbers and only one zero.
    let encoded = number.is_finite() && (number != 0.0 || number.is_sign_positive());
    if encoded { Ok(number) } else { Err(CorruptKey) }
}

/// The range up to the next `END`, which is skipped.
fn until_end(key: &[u8], at: &mut usize) -> Result<std::ops::Range<usize>, CorruptKey> {
    let start = *at;
    let len = key[start..].iter().position(|&b| b == END).ok_or(CorruptKey)?;
    *at = start + len + 1;
    Ok(start..start + len)
}

fn unescape(escaped: &[u8]) -> Result<Bytes, CorruptKey> {
    let mut out = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(&byte) = bytes.next() {
        out.push(match (byte, byte == ESCAPE) {
            (_, true) => match bytes.next() {
                Some(&digit @ (1 | 2)) => digit - 1,
                _ => return Err(CorruptKey),
            },
            (plain, false) => plain,
        });
    }
    Ok(Bytes::from(out))
}
