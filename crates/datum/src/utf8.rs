//! Converts bytes to text, with ReQL's explanation if they are not UTF-8.

use crate::{Bytes, Text};

/// Bytes of text before the error that a message quotes.
const SHOWN_BYTES: usize = 20;

/// The text in `bytes`. Fails with the ReQL message.
///
/// Source: docs/reql-spec.md section 2.4.
pub fn text_from_bytes(bytes: Bytes) -> Result<Text, String> {
    let fault = match std::str::from_utf8(&bytes) {
        Ok(_) => return Text::try_from(bytes).map_err(|_| String::new()),
        Err(fault) => fault,
    };
    let valid = fault.valid_up_to();
    let (why, position) = explain(&bytes[valid..]);
    let position = valid + position;
    let shown = String::from_utf8_lossy(&bytes[..position.min(SHOWN_BYTES)]);
    Err(format!("String `{shown}` (truncated) is not a UTF-8 string; {why} at position {position}."))
}

/// Explains why the character at the start of `bytes` is invalid, and at which of its bytes.
fn explain(bytes: &[u8]) -> (&'static str, usize) {
    let len = match bytes.first() {
        Some(0xC0..=0xDF) => 2,
        Some(0xE0..=0xEF) => 3,
        Some(0xF0..=0xF7) => 4,
        _ => return ("Invalid initial byte seen", 0),
    };
    for at in 1..len {
        match bytes.get(at) {
            None => return ("Expected continuation byte, saw end of string", at - 1),
            Some(0x80..=0xBF) => {}
            Some(_) => return ("Expected continuation byte, saw something else", at - 1),
        }
    }
    let why = match (bytes[0], bytes[1]) {
        (0xC0 | 0xC1, _) | (0xE0, ..0xA0) | (0xF0, ..0x90) => "Overlong encoding seen",
        (0xED, _) => "Surrogate encoded (between U+D800 and U+DFFF)",
        _ => "Non-Unicode character encoded (beyond U+10FFFF)",
    };
    (why, len - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_explained_where_they_show() {
        for (bytes, message) in [
            (
                &b"abc\xff"[..],
                "String `abc` (truncated) is not a UTF-8 string; Invalid initial byte seen at position 3.",
            ),
            (
                b"\xc3",
                "String `` (truncated) is not a UTF-8 string; Expected continuation byte, saw end of string at position 0.",
            ),
            (
                b"\xe3\x81(",
                "String `\u{fffd}` (truncated) is not a UTF-8 string; Expected continuation byte, saw something else at position 1.",
            ),
            (
                b"a\xc0\x80",
                "String `a\u{fffd}` (truncated) is not a UTF-8 string; Overlong encoding seen at position 2.",
            ),
        ] {
            let found = text_from_bytes(Bytes::copy_from_slice(bytes));
            assert_eq!(found, Err(message.to_owned()));
        }
        assert_eq!(text_from_bytes(Bytes::from_static("é".as_bytes())).as_deref(), Ok("é"));
    }
}
