//! Base64 text of `PTYPE<BINARY>`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Appends the padded base64 text of `bytes`.
pub(crate) fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let room = bytes.len().div_ceil(3) * 4;
    out.resize(start + room, 0);
    // The buffer has exactly the needed length, so this cannot fail.
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
}

/// Decodes base64 `text`, which may lack padding and may contain white space anywhere. Fails with ReQL's message.
///
/// Source: docs/reql-spec.md section 3.
pub(crate) fn read_base64(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let mut bits = 0_u32;
    let mut held = 0;
    let mut characters = text.chars().filter(|c| !matches!(c, ' ' | '\t' | '\r' | '\n'));
    for character in characters.by_ref() {
        if character == '=' {
            break;
        }
        let value = digit_value(character)
            .ok_or_else(|| format!("Invalid base64 character found: '{character}'."))?;
        bits = bits << 6 | value;
        held += 1;
        if held == 4 {
            out.extend_from_slice(&bits.to_be_bytes()[1..]);
            (bits, held) = (0, 0);
        }
    }
    if characters.any(|c| c != '=') {
        return Err("Invalid base64 format, data found after padding character '='.".to_owned());
    }
    match held {
        0 => {}
        1 => return Err(ONE_REMAINING.to_owned()),
        2 => out.push((bits >> 4) as u8),
        _ => out.extend_from_slice(&((bits >> 2) as u16).to_be_bytes()),
    }
    Ok(out)
}

const ONE_REMAINING: &str = "Invalid base64 length: 1 character remaining, cannot decode a full byte.";

fn digit_value(digit: char) -> Option<u32> {
    Some(match digit {
        'A'..='Z' => digit as u32 - 'A' as u32,
        'a'..='z' => digit as u32 - 'a' as u32 + 26,
        '0'..='9' => digit as u32 - '0' as u32 + 52,
        '+' => 62,
        '/' => 63,
        _ => return None,
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
            let spaced: String = text.chars().flat_map(|c| [c, '\n']).collect();
            assert_eq!(read_base64(&spaced).as_ref(), Ok(&bytes));
            assert_eq!(read_base64(text.trim_end_matches('=')), Ok(bytes));
        }
    }

    #[test]
    fn broken_text_gets_the_reference_messages() {
        let after = "Invalid base64 format, data found after padding character '='.";
        for (text, message) in [
            ("ABCDEFGH==AA", after),
            ("ABCDEF==$", after),
            ("A^CDEFGH", "Invalid base64 character found: '^'."),
            ("ABCDE", ONE_REMAINING),
            ("é", "Invalid base64 character found: 'é'."),
        ] {
            assert_eq!(read_base64(text), Err(message.to_owned()), "{text}");
        }
    }
}
