//! Reads JSON text into values.

use crate::compact::{self, Root};
pub use crate::json_error::{Fault, JsonError};
use crate::layout::{self, HEADER_BYTES};
use crate::value::Repr;
use crate::{Array, Bytes, Datum, Object, Text, raw, reader};

/// Shorter text is read into a tree.
const COMPACTED_BYTES_MIN: usize = 128;

/// Reads a complete JSON text.
///
/// Numbers become doubles, `$reql_type$` objects are checked and converted, and keys must be unique. There is no
/// limit on nesting. Objects of longer text keep their stored form, which is made in one pass and read lazily.
pub fn parse(text: &[u8]) -> Result<Datum, JsonError> {
    let text = std::str::from_utf8(text).map_err(|e| JsonError::NotUtf8(e.valid_up_to()))?;
    stored_form(text).map_or_else(|| reader::read(text), Ok)
}

/// Like [`parse`], for shared text: long strings may become slices of it.
pub fn parse_shared(text: &Text) -> Result<Datum, JsonError> {
    parse_while(text, &|| true)
}

/// Like [`parse_shared`], but calls `go_on` once in some thousand values and fails with [`JsonError::Cancelled`] if
/// it returns false.
pub fn parse_while(text: &Text, go_on: &dyn Fn() -> bool) -> Result<Datum, JsonError> {
    stored_form(text).map_or_else(|| reader::read_shared(text, go_on), Ok)
}

/// The value in stored form. `None` if the text is short, invalid, or must be read as a tree.
fn stored_form(text: &str) -> Option<Datum> {
    if text.len() < COMPACTED_BYTES_MIN {
        return None;
    }
    let compacted = compact::compact(text, HEADER_BYTES)?;
    match compacted.root {
        Root::Object(members) => {
            let row = layout::seal(compacted.text, &members, layout::Keys::Plain);
            Some(Datum::Object(Object(Repr::Raw(Bytes::from(row)))))
        }
        Root::Array(items) => {
            let text = Bytes::from(compacted.text).slice(HEADER_BYTES..);
            Some(items.into_iter().map(|item| raw::value(&text, item)).collect::<Array>().into())
        }
    }
}
