//! Errors in JSON text, with the messages that users see.

use crate::{Datum, Text};

/// Why text could not be read as a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON. `Display` is the sentence ReQL shows after
    /// `Failed to parse "…" as JSON: `.
    #[error("{}", fault.text())]
    Syntax {
        fault: Fault,
        /// Byte position of the error in the text.
        position: usize,
    },
    /// An object has the same key twice.
    #[error("Duplicate key {} in JSON.", Datum::String(.0.clone()).to_json_string())]
    DuplicateKey(Text),
    /// A `$reql_type$` object is invalid. Carries the ReQL message.
    #[error("{0}")]
    BadPseudotype(String),
    /// The text contains a NUL byte.
    #[error("Encountered unescaped null byte in JSON string.")]
    NulByte,
    /// The caller cancelled reading.
    #[error("reading was cancelled")]
    Cancelled,
    /// The text is not UTF-8 from this byte position on.
    #[error("text is not UTF-8 at position {0}")]
    NotUtf8(usize),
}

/// A syntax error in JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Empty,
    RootFollowed,
    InvalidValue,
    MissingName,
    MissingColon,
    MissingObjectComma,
    MissingArrayComma,
    BadHex,
    BadSurrogate,
    BadEscape,
    MissingQuote,
    NumberTooBig,
    MissingFraction,
    MissingExponent,
}

impl Fault {
    /// The sentence a user sees. Source: docs/reql-spec.md section 7.1, JSON.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Fault::Empty => "The document is empty.",
            Fault::RootFollowed => "The document root must not follow by other values.",
            Fault::InvalidValue => "Invalid value.",
            Fault::MissingName => "Missing a name for object member.",
            Fault::MissingColon => "Missing a colon after a name of object member.",
            Fault::MissingObjectComma => "Missing a comma or '}' after an object member.",
            Fault::MissingArrayComma => "Missing a comma or ']' after an array element.",
            Fault::BadHex => "Incorrect hex digit after \\u escape in string.",
            Fault::BadSurrogate => "The surrogate pair in string is invalid.",
            Fault::BadEscape => "Invalid escape character in string.",
            Fault::MissingQuote => "Missing a closing quotation mark in string.",
            Fault::NumberTooBig => "Number too big to be stored in double.",
            Fault::MissingFraction => "Miss fraction part in number.",
            Fault::MissingExponent => "Miss exponent in number.",
        }
    }
}
