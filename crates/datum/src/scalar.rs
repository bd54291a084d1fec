//! Simple values read in place from a stored row, without allocation or reference counting.

use std::cmp::Ordering;

use crate::escape::unescaped;
use crate::number::read_number;
use crate::order::cmp_numbers;
use crate::{Datum, Kind};

/// A borrowed null, boolean, number or text.
#[derive(Clone, Copy, Debug)]
pub enum Scalar<'a> {
    /// The absent value.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A finite IEEE double.
    Number(f64),
    /// The UTF-8 bytes of a text.
    Text(&'a [u8]),
    /// A text with escapes, as spelled in canonical JSON between its quotes.
    Escaped(&'a [u8]),
}

impl<'a> Scalar<'a> {
    /// The value of canonical JSON text, or `None` for an array or object.
    #[must_use]
    #[inline]
    pub fn of_json(json: &'a [u8]) -> Option<Scalar<'a>> {
        match json {
            [b'"', text @ .., b'"'] => Some(match memchr::memchr(b'\\', text) {
                None => Scalar::Text(text),
                Some(_) => Scalar::Escaped(text),
            }),
            [b'-' | b'0'..=b'9', ..] => number(json).map(Scalar::Number),
            b"true" => Some(Scalar::Bool(true)),
            b"false" => Some(Scalar::Bool(false)),
            b"null" => Some(Scalar::Null),
            _ => None,
        }
    }

    /// The value of `datum`, or `None` if it is of another kind.
    #[must_use]
    #[inline]
    pub fn of_datum(datum: &'a Datum) -> Option<Scalar<'a>> {
        match datum {
            Datum::Null => Some(Scalar::Null),
            Datum::Bool(value) => Some(Scalar::Bool(*value)),
            Datum::Number(number) => Some(Scalar::Number(*number)),
            Datum::String(text) => Some(Scalar::Text(text.as_bytes())),
            _ => None,
        }
    }

    /// All values but `false` and `null` are true.
    #[must_use]
    #[inline]
    pub fn is_truthy(self) -> bool {
        !matches!(self, Scalar::Null | Scalar::Bool(false))
    }

    /// Compares in the order of [`Datum`]s.
    #[must_use]
    #[inline]
    pub fn compare(self, other: Scalar<'_>) -> Ordering {
        match (self, other) {
            (Scalar::Number(a), Scalar::Number(b)) => cmp_numbers(a, b),
            (Scalar::Text(a), Scalar::Text(b)) => a.cmp(b),
            (Scalar::Escaped(a), Scalar::Text(b)) => unescaped(a).cmp(b.iter().copied()),
            (Scalar::Text(a), Scalar::Escaped(b)) => a.iter().copied().cmp(unescaped(b)),
            (Scalar::Escaped(a), Scalar::Escaped(b)) => unescaped(a).cmp(unescaped(b)),
            (Scalar::Bool(a), Scalar::Bool(b)) => a.cmp(&b),
            (a, b) => a.kind().cmp(&b.kind()),
        }
    }

    fn kind(self) -> Kind {
        match self {
            Scalar::Null => Kind::Null,
            Scalar::Bool(_) => Kind::Bool,
            Scalar::Number(_) => Kind::Number,
            Scalar::Text(_) | Scalar::Escaped(_) => Kind::String,
        }
    }
}

/// An integer of at most this many digits converts to a double exactly.
const PLAIN_DIGITS_MAX: usize = 15;

#[inline]
fn number(json: &[u8]) -> Option<f64> {
    if json.len() <= PLAIN_DIGITS_MAX && json.iter().all(u8::is_ascii_digit) {
        let value = json.iter().fold(0_u64, |value, digit| value * 10 + u64::from(digit - b'0'));
        return Some(value as f64);
    }
    let text = std::str::from_utf8(json).ok()?;
    read_number(text).ok().filter(|(_, length)| *length == json.len()).map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    const TEXTS: [&str; 22] = [
        "null",
        "true",
        "false",
        "0",
        "-0.0",
        "7",
        "-7",
        "1.5",
        "1e300",
        "123456789012345",
        "9007199254740992",
        "-1e-7",
        r#""""#,
        r#""a""#,
        r#""ab""#,
        r#""é""#,
        r#""a\n""#,
        r#""a\nb""#,
        r#""a\\""#,
        r#""a\"b""#,
        r#""\u0000""#,
        r#""\u001F\tn""#,
    ];

    #[test]
    fn scalars_are_ordered_and_true_as_datums_are() {
        let datums: Vec<Datum> = TEXTS.iter().map(|t| json::parse(t.as_bytes()).unwrap()).collect();
        for (text, datum) in TEXTS.iter().zip(&datums) {
            let scalar = Scalar::of_json(text.as_bytes()).unwrap();
            assert_eq!(scalar.is_truthy(), datum.is_truthy(), "{text}");
            for other in &datums {
                let compared = scalar.compare(Scalar::of_datum(other).unwrap());
                assert_eq!(compared, datum.cmp(other), "{text} and {other:?}");
            }
        }
    }

    #[test]
    fn other_values_are_not_scalars() {
        for text in ["[]", "{}", "", "1x", "-", "\""] {
            assert!(Scalar::of_json(text.as_bytes()).is_none(), "{text}");
        }
        assert!(Scalar::of_datum(&Datum::empty_array()).is_none());
    }
}
