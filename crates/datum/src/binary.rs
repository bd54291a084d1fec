//! Base64 text of `PTYPE<BINARY>`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Appends the padded base64 text of `bytes`.
pub(crate) fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let room = bytes.len().div_ceil(3) * 4;
    out.resize(start + room, 0);
    // The room is exact, so this cannot fail.
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
}

/// Bytes of base64 `text`, padded or not, or the message ReQL gives for it.
///
/// Source: reql reference section 3.
pub(crate) fn read_base64(text: &str) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let data_len = bytes.iter().position(|&b| b == b'=').unwrap_or(bytes.len());
    let (data, padding) = bytes.split_at(data_len);
    if let Some(&bad) = data.iter().find(|&&b| !is_digit(b)) {
        return Err(bad_character(text, bad));
    }
    if padding.iter().any(|&b| b != b'=') {
        let found = "Invalid base64 format, data found after padding character '='.";
        return Err(found.to_owned());
    }
    if data.len() % 4 == 1 {
        let found = "Invalid base64 length: 1 character remaining, cannot decode a full byte.";
        return Err(found.to_owned());
    }
    Ok(decode(data))
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/'
}

fn bad_character(text: &str, bad: u8) -> String {
    let found = text.chars().find(|c| c.is_ascii() && *c as u8 == bad || !c.is_ascii());
    format!("Invalid base64 character found: '{}'.", found.unwrap_or(char::from(bad)))
}

/// Decodes base64 digits without padding, leaving out bits that do not fill a byte.
fn decode(digits: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let bits = group.iter().fold(0_u32, |bits, &d| bits << 6 | digit_value(d));
        let bits = bits << (6 * (4 - group.len()));
        let bytes = [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8];
        out.extend_from_slice(&bytes[..group.len() - 1]);
    }
    out
}

fn digit_value(digit: u8) -> u32 {
    u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        _ => 63,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_their_text() {
        for len in 0..50_u8 {
            let bytes: Vec<u8> = (0..len).map(|i| i.wrapping_mul(37) ^ 0xA5).collect();
            let mut text = Vec::new();
            write_base64(&bytes, &mut text);
            let text = String::from_utf8(text).expect("ascii");
            assert_eq!(read_base64(&text).as_ref(), Ok(&bytes));
            assert_eq!(read_base64(text.trim_end_matches('=')), Ok(bytes));
        }
    }

    #[test]
    fn broken_text_gets_the_reference_messages() {
        let after = "Invalid base64 format, data found after padding character '='.";
        let short = "Invalid base64 length: 1 character remaining, cannot decode a full byte.";
        for (text, message) in [
            ("ABCDEFGH==AA", after),
            ("ABCDEF==$", after),
            ("A^CDEFGH", "Invalid base64 character found: '^'."),
            ("ABCDE", short),
            ("é", "Invalid base64 character found: 'é'."),
        ] {
            assert_eq!(read_base64(text), Err(message.to_owned()), "{text}");
        }
    }
}
