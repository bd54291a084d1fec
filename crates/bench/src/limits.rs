//! Parsers of flags with a lower bound.

use std::str::FromStr;
use std::time::Duration;

/// A whole number of at least 1.
pub fn at_least_one<T: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<T, String> {
    let number = text.parse::<T>().ok().filter(|number| *number >= T::from(1));
    number.ok_or_else(|| "expected a whole number of at least 1".to_owned())
}

/// A number above 0.
pub fn above_zero(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

/// A number of seconds, which may be 0.
pub fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| Duration::try_from_secs_f64(*number).is_ok());
    number.ok_or_else(|| "expected a number of seconds of at least 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{above_zero, at_least_one, seconds};

    #[test]
    fn nothing_and_nonsense_are_refused() {
        assert_eq!((at_least_one::<u16>("1"), above_zero("0.5")), (Ok(1), Ok(0.5)));
        assert!(["0", "-1", "x", "70000"].iter().all(|text| at_least_one::<u16>(text).is_err()));
        assert!(["0", "-1", "x", "inf", "NaN"].iter().all(|text| above_zero(text).is_err()));
        assert_eq!((seconds("0"), seconds("0.5")), (Ok(0.0), Ok(0.5)));
        assert!(["-1", "x", "inf", "NaN", "1e300"].iter().all(|text| seconds(text).is_err()));
    }
}
