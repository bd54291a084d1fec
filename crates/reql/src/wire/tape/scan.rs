//! Finds the ends of strings and numbers, and decodes escapes.

use super::NotJson;

/// The first position from `start` on with a quote, a backslash or a control character; the length if there is
/// none.
pub(super) fn plain_end(bytes: &[u8], start: usize) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let zero_byte = |word: u64| word.wrapping_sub(LOW) & !word & HIGH;
    let mut at = start;
    while let Some(word) = bytes.get(at..at + 8).and_then(|lane| lane.try_into().ok()) {
        let word = u64::from_le_bytes(word);
        let quote = zero_byte(word ^ (LOW * u64::from(b'"')));
        let backslash = zero_byte(word ^ (LOW * u64::from(b'\\')));
        let control = word.wrapping_sub(LOW * 0x20) & !word & HIGH;
        let special = quote | backslash | control;
        if special != 0 {
            // The lowest mark is exact: a borrow can only produce false marks above a true one.
            return at + (special.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|&byte| byte != b'"' && byte != b'\\' && byte >= 0x20) {
        at += 1;
    }
    at
}

/// Decodes the escape whose letter is at `at`. Returns the character and the position after it.
pub(super) fn escape(text: &str, at: usize) -> Result<(char, usize), NotJson> {
    let character = match text.as_bytes().get(at) {
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'/') => '/',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode_escape(text, at + 1),
        _ => return Err(NotJson),
    };
    Ok((character, at + 1))
}

fn unicode_escape(text: &str, at: usize) -> Result<(char, usize), NotJson> {
    let high = hex_unit(text, at)?;
    if let Some(character) = char::from_u32(high) {
        return Ok((character, at + 4));
    }
    let low_follows = text.get(at + 4..at + 6) == Some("\\u");
    let low = if low_follows { hex_unit(text, at + 6)? } else { return Err(NotJson) };
    if !(0xd800..0xdc00).contains(&high) || !(0xdc00..0xe000).contains(&low) {
        return Err(NotJson);
    }
    let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    char::from_u32(code).map(|character| (character, at + 10)).ok_or(NotJson)
}

fn hex_unit(text: &str, at: usize) -> Result<u32, NotJson> {
    let digits = text.get(at..at + 4).ok_or(NotJson)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(NotJson);
    }
    u32::from_str_radix(digits, 16).map_err(|_| NotJson)
}

/// The plain integer of a few digits at the start of `bytes`, and its length: the fast path for most numbers of a
/// query.
pub(super) fn small_integer(bytes: &[u8]) -> Option<(f64, usize)> {
    const DIGITS_MAX: usize = 15;
    let mut value: u64 = 0;
    let mut len = 0;
    while let Some(digit @ b'0'..=b'9') = bytes.get(len) {
        value = value * 10 + u64::from(digit - b'0');
        len += 1;
        if len > DIGITS_MAX {
            return None;
        }
    }
    let ends = !matches!(bytes.get(len), Some(b'.' | b'e' | b'E'));
    let plain = len == 1 || (len > 1 && bytes[0] != b'0');
    // Integers of up to 15 digits are exact.
    (ends && plain).then_some((value as f64, len))
}

/// The length of the JSON number at the start of `bytes`.
pub(super) fn number_len(bytes: &[u8]) -> Option<usize> {
    let digits =
        |from: usize| bytes.get(from..).unwrap_or_default().iter().take_while(|b| b.is_ascii_digit()).count();
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    let whole = digits(at);
    if whole == 0 || (whole > 1 && bytes[at] == b'0') {
        return None;
    }
    at += whole;
    if bytes.get(at) == Some(&b'.') {
        let fraction = digits(at + 1);
        if fraction == 0 {
            return None;
        }
        at += 1 + fraction;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let exponent = digits(at + 1 + sign);
        if exponent == 0 {
            return None;
        }
        at += 1 + sign + exponent;
    }
    Some(at)
}
