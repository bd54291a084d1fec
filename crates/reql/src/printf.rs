//! Prints doubles like C's `%.20g`, the format of numbers in many error messages.
//!
//! Data is printed by `datum`; this format appears only in error messages.

/// Significant digits of the form.
const DIGITS: i32 = 20;

/// `number` with at most 20 significant digits, without trailing zeros: `0.5`, `9007199254740994`.
///
/// Numbers that are not finite print as `inf`, `-inf` or `nan`.
pub fn g20(number: f64) -> String {
    if !number.is_finite() {
        return not_finite(number).to_owned();
    }
    let scientific = format!("{number:.19e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or(0);
        without_trailing_zeros(&format!("{number:.decimals$}")).to_owned()
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let mantissa = without_trailing_zeros(mantissa);
        format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
    }
}

fn not_finite(number: f64) -> &'static str {
    match (number.is_nan(), number < 0.0) {
        (true, _) => "nan",
        (false, true) => "-inf",
        (false, false) => "inf",
    }
}

fn without_trailing_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::g20;

    #[test]
    fn numbers_print_as_c_prints_them() {
        for (number, text) in [
            (0.0, "0"),
            (-0.5, "-0.5"),
            (1.5, "1.5"),
            (0.1, "0.10000000000000000555"),
            (-120549.25, "-120549.25"),
            (9_007_199_254_740_994.0, "9007199254740994"),
            (-9_007_199_254_740_994.0, "-9007199254740994"),
            (1e20, "1e+20"),
            (1e19, "10000000000000000000"),
            (1e300, "1.0000000000000000525e+300"),
            (1e-7, "9.9999999999999995475e-08"),
            (0.0001, "0.00010000000000000000479"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(g20(number), text);
        }
    }
}
