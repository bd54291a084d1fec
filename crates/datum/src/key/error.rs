//! Why a value cannot be a key.

use crate::{Datum, Kind};

/// Why a value cannot be a key. `Display` is the ReQL message, letter for letter.
///
/// Source: docs/reql-spec.md section 4.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A primary key may not be of this kind.
    #[error(
        "Primary keys must be either a number, string, bool, pseudotype or array (got type {}):\n{}",
        .0.kind().name(), .0.truncated()
    )]
    PrimaryKind(Datum),
    /// A secondary index does not hold values of this kind.
    #[error(
        "Secondary keys must be a number, string, bool, pseudotype, or array (got {} of type {}).",
        .0.pretty(), .0.kind().name()
    )]
    SecondaryKind(Datum),
    /// An array in a key contains an item of a kind that is not allowed.
    #[error(
        "Array keys can only contain numbers, strings, bools,  pseudotypes, or arrays (got {} of type {}).",
        .0.pretty(), .0.kind().name()
    )]
    ItemKind(Datum),
    /// The value is a geometry.
    #[error("Cannot use a geometry value as a key value in a primary or non-geospatial secondary index.")]
    Geometry,
    /// The key exceeds the length limit of primary keys.
    #[error("Primary key too long (max 127 characters): {}", .0.pretty())]
    TooLong(Datum),
    /// A string in a primary key contains a NUL byte.
    #[error("String {start} (truncated) contains NULL byte at offset {offset} in index key.")]
    NulByte {
        /// The start of the string, quoted.
        start: String,
        /// Position of the byte in the string.
        offset: usize,
    },
}

impl KeyError {
    /// Whether the offending value is `minval` or `maxval`, which bound ranges of keys but are not keys.
    #[must_use]
    pub fn is_extreme(&self) -> bool {
        match self {
            KeyError::PrimaryKind(value) | KeyError::SecondaryKind(value) | KeyError::ItemKind(value) => {
                matches!(value.kind(), Kind::MinVal | Kind::MaxVal)
            }
            _ => false,
        }
    }

    /// Whether the offending value is null, which makes the error a NON_EXISTENCE error.
    #[must_use]
    pub fn is_null(&self) -> bool {
        match self {
            KeyError::PrimaryKind(value) | KeyError::SecondaryKind(value) | KeyError::ItemKind(value) => {
                value.kind() == Kind::Null
            }
            _ => false,
        }
    }
}
