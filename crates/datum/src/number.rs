//! Prints and reads numbers: each double has exactly one text.

/// Integral doubles up to this magnitude print without a fraction or exponent.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;
/// Positive powers of ten a double holds exactly.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// The text of a finite double: an integer up to 2^53, `-0.0`, otherwise digits that read back as the same double,
/// in positional form from 1e-6 to below 1e21.
///
/// Source: docs/reql-spec.md section 3, "NUMBER". The digits come from Grisu2 as implemented in RapidJSON, which
/// RethinkDB uses: nearly always the shortest, not always the nearest of these.
#[must_use]
pub fn format_number(number: f64) -> String {
    let mut out = Vec::with_capacity(24);
    write_number(number, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Appends [`format_number`] of `number`.
pub(crate) fn write_number(number: f64, out: &mut Vec<u8>) {
    if number.abs() <= INTEGER_MAX && number.trunc() == number {
        if number == 0.0 && number.is_sign_negative() {
            out.extend_from_slice(b"-0.0");
        } else {
            write_integer(number as i64, out);
        }
    } else if number.is_finite() {
        write_fraction(number, out);
    } else {
        // A datum never contains such a number; `null` is not mistaken for one.
        out.extend_from_slice(b"null");
    }
}

fn write_integer(integer: i64, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 20];
    let mut start = digits.len();
    let mut left = integer.unsigned_abs();
    loop {
        start -= 1;
        digits[start] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if integer < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[start..]);
}

/// Writes a number that is not a plain integer, in positional or exponential form.
fn write_fraction(number: f64, out: &mut Vec<u8>) {
    let (digits, point) = digits_of(number.abs());
    let count = digits.len as i32;
    let digits = &digits.bytes[..digits.len];
    if number < 0.0 {
        out.push(b'-');
    }
    if count <= point && point <= 21 {
        out.extend_from_slice(digits);
        out.resize(out.len() + (point - count) as usize, b'0');
        out.extend_from_slice(b".0");
    } else if 0 < point && point <= 21 {
        let (whole, fraction) = digits.split_at(point as usize);
        out.extend_from_slice(whole);
        out.push(b'.');
        out.extend_from_slice(fraction);
    } else if -6 < point && point <= 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + point.unsigned_abs() as usize, b'0');
        out.extend_from_slice(digits);
    } else {
        out.push(digits[0]);
        if count > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.push(b'e');
        write_integer(i64::from(point - 1), out);
    }
}

struct Digits {
    bytes: [u8; 24],
    len: usize,
}

/// The decimal digits of a positive double, without leading or trailing zeros, and the position of the decimal
/// point relative to the first digit.
fn digits_of(number: f64) -> (Digits, i32) {
    let mut buffer = dtoa::Buffer::new();
    let text = buffer.format_finite(number).as_bytes();
    let mut digits = Digits { bytes: [0; 24], len: 0 };
    let mut point = 0;
    let mut seen_point = false;
    let mut exponent = 0;
    for (i, &byte) in text.iter().enumerate() {
        match byte {
            b'.' => seen_point = true,
            b'e' => {
                exponent = small_integer(&text[i + 1..]);
                break;
            }
            b'0' if digits.len == 0 => point -= i32::from(seen_point),
            digit => {
                digits.bytes[digits.len] = digit;
                digits.len += 1;
                point += i32::from(!seen_point);
            }
        }
    }
    while digits.len > 1 && digits.bytes[digits.len - 1] == b'0' {
        digits.len -= 1;
    }
    (digits, point + exponent)
}

fn small_integer(text: &[u8]) -> i32 {
    let (sign, digits) = match text.split_first() {
        Some((b'-', rest)) => (-1, rest),
        _ => (1, text),
    };
    sign * digits.iter().fold(0, |n, d| n * 10 + i32::from(d - b'0'))
}

/// The length of a number printed with twenty significant digits and no trailing zeros, as C's `%.20g` does. Both
/// zeros print as `0`.
pub(crate) fn len_of_20_digits(number: f64) -> usize {
    const DIGITS: i32 = 20;
    let text = format!("{:.19e}", number.abs());
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let count = digits.trim_end_matches('0').bytes().filter(u8::is_ascii_digit).count().max(1) as i32;
    let point = |whole: i32| i32::from(count > whole);
    let len = match exponent {
        0..DIGITS => count.max(exponent + 1) + point(exponent + 1),
        -4..0 => count - exponent + 1,
        _ => count + point(1) + "e+".len() as i32 + if exponent.abs() < 100 { 2 } else { 3 },
    };
    usize::from(number < 0.0) + len as usize
}

/// Why a JSON number is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberFault {
    /// The number has no digits before its point or exponent.
    NoDigit,
    /// No digits follow the decimal point.
    NoFraction,
    /// No digits follow the `e`.
    NoExponent,
    /// Beyond the range of a double.
    TooBig,
}

/// Reads the JSON number at the start of `text`. Returns its value and its length in bytes. A number without
/// fraction and exponent is an integer, whose zero has no sign: only `-0.0` has one. Source: reader.h of RapidJSON
/// as RethinkDB has it.
pub(crate) fn read_number(text: &str) -> Result<(f64, usize), NumberFault> {
    let bytes = text.as_bytes();
    let start = usize::from(bytes.first() == Some(&b'-'));
    let signed = |value: f64| if start == 1 { -value } else { value };
    let (mut mantissa, whole) = read_digits(&bytes[start..], 0);
    let mut end = start + whole;
    match (bytes.get(start), whole) {
        (_, 0) => return Err(NumberFault::NoDigit),
        // A number ends after a leading zero.
        (Some(b'0'), 2..) => return Ok((0.0, start + 1)),
        _ => {}
    }
    let mut digits = whole;
    let mut fraction = 0;
    if bytes.get(end) == Some(&b'.') {
        (mantissa, fraction) = read_digits(&bytes[end + 1..], mantissa);
        if fraction == 0 {
            return Err(NumberFault::NoFraction);
        }
        digits += fraction;
        end += 1 + fraction;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let (_, exponent) = read_digits(&bytes[end + 1 + sign..], 0);
        if exponent == 0 {
            return Err(NumberFault::NoExponent);
        }
        end += 1 + sign + exponent;
    } else if digits <= 19 && mantissa <= 1 << 53 && fraction < EXACT_POWERS.len() {
        // Both are exact doubles, so a single rounding gives the nearest double.
        let value = signed(mantissa as f64 / EXACT_POWERS[fraction]);
        return Ok((if value == 0.0 && fraction == 0 { 0.0 } else { value }, end));
    }
    match text[..end].parse::<f64>() {
        Ok(value) if value.is_finite() => Ok((value, end)),
        _ => Err(NumberFault::TooBig),
    }
}

/// Appends the digits at the start of `bytes` to `value`. Returns the value and the number of digits. The value is
/// only meaningful for up to nineteen digits in total.
#[inline]
fn read_digits(bytes: &[u8], value: u64) -> (u64, usize) {
    let mut value = value;
    for (count, byte) in bytes.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (value, count);
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    (value, bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_the_reference_does() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0.0"),
            (1.0, "1"),
            (-42.0, "-42"),
            (0.1, "0.1"),
            (1.5, "1.5"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (-9_007_199_254_740_992.0, "-9007199254740992"),
            (9_007_199_254_740_994.0, "9007199254740994.0"),
            (1e20, "100000000000000000000.0"),
            (1e21, "1e21"),
            (1e22, "1e22"),
            (1.5e300, "1.5e300"),
            (1e-6, "0.000001"),
            (1.25e-6, "0.00000125"),
            (1e-7, "1e-7"),
            (8.726646259990191e-9, "8.726646259990191e-9"),
            (f64::MAX, "1.7976931348623157e308"),
            (5e-324, "5e-324"),
            (123456.789, "123456.789"),
            (1375147296.681, "1375147296.681"),
            (1.23456789e17, "123456789000000000.0"),
            // Not the nearest of the shortest texts, which would end in 4.
            (40_007_862.917_250_894, "40007862.917250897"),
        ] {
            assert_eq!(format_number(number), text);
            assert_eq!(text.parse::<f64>().map(f64::to_bits), Ok(number.to_bits()));
        }
    }

    #[test]
    fn lengths_are_those_of_c() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (300.0, "300"),
            (-1.5, "-1.5"),
            (0.1, "0.10000000000000000555"),
            (1e19, "10000000000000000000"),
            (1e20, "1e+20"),
            (1.5e20, "1.5e+20"),
            (0.0001, "0.00010000000000000000479"),
            (0.00001, "1.0000000000000000818e-05"),
            (1e300, "1.0000000000000000525e+300"),
            (-5e-324, "-4.9406564584124654418e-324"),
        ] {
            assert_eq!(len_of_20_digits(number), text.len(), "{text}");
        }
    }

    #[test]
    fn numbers_read_back_as_the_standard_library_reads_them() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = f64::from_bits(state ^ (state >> 31));
            if !number.is_finite() {
                continue;
            }
            let text = format_number(number);
            let read = read_number(&text);
            assert_eq!(read.map(|(n, len)| (n.to_bits(), len)), Ok((number.to_bits(), text.len())));
        }
    }

    #[test]
    fn each_error_in_a_number_is_distinguished() {
        assert_eq!(read_number("-"), Err(NumberFault::NoDigit));
        assert_eq!(read_number("+1"), Err(NumberFault::NoDigit));
        assert_eq!(read_number("1."), Err(NumberFault::NoFraction));
        assert_eq!(read_number("1e+"), Err(NumberFault::NoExponent));
        assert_eq!(read_number("1e400"), Err(NumberFault::TooBig));
        assert_eq!(read_number("01"), Ok((0.0, 1)));
        assert_eq!(read_number("1e-400"), Ok((0.0, 6)));
        assert_eq!(read_number("12]"), Ok((12.0, 2)));
    }

    #[test]
    fn only_a_zero_with_a_fraction_or_exponent_has_a_sign() {
        for (text, has_sign) in
            [("-0", false), ("-0]", false), ("-00", false), ("-0.0", true), ("-0e0", true)]
        {
            let (zero, _) = read_number(text).expect("a number");
            assert_eq!(zero, 0.0);
            assert_eq!(zero.is_sign_negative(), has_sign, "{text}");
        }
    }
}
