//! Parses numbers as C's `strtod` does: decimal, hexadecimal, `inf`, `nan`.

/// Parses `text`, which may have leading whitespace; `None` if other text follows the number.
#[must_use]
pub fn strtod(text: &str) -> Option<f64> {
    let text = text.trim_start_matches([' ', '\t', '\n', '\r', '\u{b}', '\u{c}']);
    let (negative, magnitude) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let value = magnitude_of(magnitude)?;
    Some(if negative { -value } else { value })
}

fn magnitude_of(text: &str) -> Option<f64> {
    let lower = text.to_ascii_lowercase();
    match lower.as_str() {
        "inf" | "infinity" => Some(f64::INFINITY),
        "nan" => Some(f64::NAN),
        _ => match lower.strip_prefix("0x") {
            Some(digits) => hexadecimal(digits),
            None => decimal(&lower),
        },
    }
}

fn decimal(text: &str) -> Option<f64> {
    // The standard library parses the same numbers, and some words, which were handled above.
    let starts_as_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if starts_as_number { text.parse().ok() } else { None }
}

/// `hhh.hhh` with an optional power of two, `p±dd`.
fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, power) = match text.split_once('p') {
        Some((digits, power)) => (digits, binary_power(power)?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut bits = 0_u64;
    let mut exponent = power;
    for (i, digit) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u64::from(digit.to_digit(16)?);
        let is_fraction = i >= whole.len();
        if bits >> 60 == 0 {
            bits = bits << 4 | digit;
            exponent -= if is_fraction { 4 } else { 0 };
        } else {
            // Digits below the precision matter only for rounding ties.
            bits |= u64::from(digit != 0);
            exponent += if is_fraction { 0 } else { 4 };
        }
    }
    // Scales in two steps, so that a power below the range of doubles does not underflow too early.
    let half = exponent.clamp(-4_000, 4_000) / 2;
    let rest = exponent.clamp(-4_000, 4_000) - half;
    Some(bits as f64 * 2_f64.powi(half) * 2_f64.powi(rest))
}

fn binary_power(text: &str) -> Option<i32> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // Longer exponents are all beyond the range of doubles.
    let magnitude = digits.parse::<i32>().unwrap_or(100_000).min(100_000);
    Some(if text.starts_with('-') { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::strtod;

    #[test]
    fn numbers_read_as_c_reads_them() {
        for (text, number) in [
            ("-1.2", -1.2),
            ("0xa", 10.0),
            ("0XaP1", 20.0),
            ("-0x1.8", -1.5),
            ("0x.8", 0.5),
            ("0x1p-1074", 5e-324),
            ("0x1fffffffffffff1", 144_115_188_075_855_857.0),
            ("+7", 7.0),
            (" \t\n1e3", 1000.0),
            ("1E+2", 100.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e999", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("inf", f64::INFINITY),
        ] {
            assert_eq!(strtod(text), Some(number), "{text}");
        }
        assert!(strtod("NaN").is_some_and(f64::is_nan));
    }

    #[test]
    fn text_after_a_number_is_refused() {
        for text in [
            "", "-", "--1.2", "-1.2-", "1 ", "1e", "1e+", "0x", "0x.", "0xg", "0x1p", "infin", "e5", ".",
            "1_0", "٣",
        ] {
            assert_eq!(strtod(text), None, "{text}");
        }
    }
}
