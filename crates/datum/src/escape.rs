//! Text of JSON strings: escaping, unescaping, and finding the end of plain text.

/// Bytes examined together in the search for the end of plain text.
const LANE: usize = 32;

/// Position at or after `from` of the first byte that is not plain inside a JSON string (a quote, a backslash or a
/// control character); the length if there is none.
#[inline]
pub(crate) fn plain_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(lane) = bytes.get(at..at + LANE) {
        if lane.iter().fold(false, |any, &b| any | is_special(b)) {
            break;
        }
        at += LANE;
    }
    while at < bytes.len() && !is_special(bytes[at]) {
        at += 1;
    }
    at
}

#[inline]
fn is_special(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte < 0x20)
}

/// Appends `text` as a JSON string with its quotes.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    write_escaped(text, out);
    out.push(b'"');
}

/// Appends `text` escaped, without quotes.
pub(crate) fn write_escaped(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        let end = plain_end(bytes, at);
        out.extend_from_slice(&bytes[at..end]);
        let Some(&special) = bytes.get(end) else { return };
        write_special(special, out);
        at = end + 1;
    }
}

fn write_special(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x09 => b't',
        0x0a => b'n',
        0x0c => b'f',
        0x0d => b'r',
        _ => {
            let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&digits);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// The unescaped bytes of `canonical`, text with escapes as [`write_escaped`] makes them. Other input gives
/// arbitrary bytes, never a panic.
#[inline]
pub(crate) fn unescaped(canonical: &[u8]) -> impl Iterator<Item = u8> {
    let mut bytes = canonical.iter().copied();
    std::iter::from_fn(move || {
        let byte = bytes.next()?;
        if byte != b'\\' {
            return Some(byte);
        }
        Some(match bytes.next()? {
            b'b' => 0x08,
            b't' => 0x09,
            b'n' => 0x0a,
            b'f' => 0x0c,
            b'r' => 0x0d,
            b'u' => {
                let code = bytes.by_ref().take(4).map(|digit| char::from(digit).to_digit(16).unwrap_or(0));
                code.fold(0, |code, digit| code << 4 | digit) as u8
            }
            same => same,
        })
    })
}

/// Whether `byte` may be part of an escape in canonical text. Text without such bytes occurs in canonical text
/// exactly where it occurs in the unescaped text.
#[must_use]
pub fn may_be_escape(byte: u8) -> bool {
    is_special(byte)
        || byte.is_ascii_digit()
        || matches!(byte, b'A'..=b'F' | b'b' | b'f' | b'n' | b'r' | b't' | b'u')
}

/// Why an escape is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EscapeFault {
    /// The character after the backslash is not an escape.
    Unknown,
    /// `\u` without four hex digits.
    Hex,
    /// Half of a surrogate pair.
    Surrogate,
}

/// Reads the escape whose backslash is at `at`. Returns the character and the position after it.
pub(crate) fn read_escape(bytes: &[u8], at: usize) -> Result<(char, usize), EscapeFault> {
    let plain = match bytes.get(at + 1) {
        Some(&same @ (b'"' | b'\\' | b'/')) => char::from(same),
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return read_unicode(bytes, at + 2),
        _ => return Err(EscapeFault::Unknown),
    };
    Ok((plain, at + 2))
}

/// Reads the hex digits at `at`, and a second escape if they are half of a surrogate pair.
fn read_unicode(bytes: &[u8], at: usize) -> Result<(char, usize), EscapeFault> {
    let first = read_hex(bytes, at)?;
    if !(0xD800..=0xDFFF).contains(&first) {
        let found = char::from_u32(first).ok_or(EscapeFault::Surrogate)?;
        return Ok((found, at + 4));
    }
    if first > 0xDBFF || bytes.get(at + 4..at + 6) != Some(b"\\u".as_slice()) {
        return Err(EscapeFault::Surrogate);
    }
    let second = read_hex(bytes, at + 6)?;
    if !(0xDC00..=0xDFFF).contains(&second) {
        return Err(EscapeFault::Surrogate);
    }
    let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    let found = char::from_u32(code).ok_or(EscapeFault::Surrogate)?;
    Ok((found, at + 10))
}

fn read_hex(bytes: &[u8], at: usize) -> Result<u32, EscapeFault> {
    let digits = bytes.get(at..at + 4).ok_or(EscapeFault::Hex)?;
    digits.iter().try_fold(0, |code, &digit| {
        let value = char::from(digit).to_digit(16).ok_or(EscapeFault::Hex)?;
        Ok(code << 4 | value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_ends_at_the_first_special_byte_wherever_it_is() {
        for len in 0..100 {
            for special in [b'"', b'\\', 0, 0x1f] {
                let mut bytes = vec![b'~'; len];
                bytes.push(special);
                bytes.extend_from_slice(b"\x7f more \" text");
                for from in 0..=len {
                    assert_eq!(plain_end(&bytes, from), len);
                }
            }
        }
        assert_eq!(plain_end("plain é text".as_bytes(), 0), 13);
    }

    #[test]
    fn every_control_character_is_escaped_the_one_way() {
        let mut out = Vec::new();
        write_string("a\"\\/\u{8}\t\n\u{c}\r\u{0}\u{1f}\u{7f}é", &mut out);
        let expected = "\"a\\\"\\\\/\\b\\t\\n\\f\\r\\u0000\\u001F\u{7f}é\"";
        assert_eq!(String::from_utf8(out).expect("utf-8"), expected);
    }

    #[test]
    fn escaped_text_is_unescaped() {
        let text: String = (0..0x80).map(char::from).chain("é😀\\u0041".chars()).collect();
        let mut out = Vec::new();
        write_escaped(&text, &mut out);
        assert!(out.len() > text.len());
        assert_eq!(unescaped(&out).collect::<Vec<_>>(), text.as_bytes());
        for escape in (0..0x80).map(|byte| char::from(byte).to_string()) {
            out.clear();
            write_escaped(&escape, &mut out);
            assert!(out.len() == 1 || out.iter().copied().all(may_be_escape), "{escape:?}");
        }
        // Text that ends inside an escape ends the iterator.
        for cut in [&b"a\\"[..], b"a\\u", b"a\\u0"] {
            assert!(unescaped(cut).count() <= 2);
        }
    }

    #[test]
    fn escapes_are_read_and_errors_distinguished() {
        assert_eq!(read_escape(b"\\n", 0), Ok(('\n', 2)));
        assert_eq!(read_escape(b"\\u00e9x", 0), Ok(('é', 6)));
        assert_eq!(read_escape(b"\\ud83d\\uDE00", 0), Ok(('😀', 12)));
        assert_eq!(read_escape(b"\\ud83d", 0), Err(EscapeFault::Surrogate));
        assert_eq!(read_escape(b"\\ude00", 0), Err(EscapeFault::Surrogate));
        assert_eq!(read_escape(b"\\ud83d\\u0041", 0), Err(EscapeFault::Surrogate));
        assert_eq!(read_escape(b"\\u12", 0), Err(EscapeFault::Hex));
        assert_eq!(read_escape(b"\\u+123", 0), Err(EscapeFault::Hex));
        assert_eq!(read_escape(b"\\x", 0), Err(EscapeFault::Unknown));
        assert_eq!(read_escape(b"\\", 0), Err(EscapeFault::Unknown));
    }
}
