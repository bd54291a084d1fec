//! An instant with a fixed zone offset: `PTYPE<TIME>`.

use std::fmt::Write as _;

/// Largest magnitude at which a double can still represent milliseconds.
const ROUNDED_SECONDS_MAX: f64 = 9_007_199_254_740.0;

/// An instant with a precision of a millisecond, and the zone it is shown in.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Seconds since 1970-01-01T00:00:00Z, rounded to milliseconds.
    pub epoch_seconds: f64,
    /// Minutes east of UTC, within ±24:59.
    pub offset_minutes: i16,
}

impl Time {
    /// The instant `epoch_seconds` after the start of 1970, rounded to the millisecond.
    #[must_use]
    pub fn new(epoch_seconds: f64, offset_minutes: i16) -> Time {
        let is_rounded = epoch_seconds.abs() < ROUNDED_SECONDS_MAX;
        let epoch_seconds = if is_rounded { whole_milliseconds(epoch_seconds) } else { epoch_seconds };
        Time { epoch_seconds, offset_minutes }
    }

    /// The zone as drivers see it: `+hh:mm` or `-hh:mm`.
    #[must_use]
    pub fn offset_text(&self) -> String {
        let sign = if self.offset_minutes < 0 { '-' } else { '+' };
        let minutes = self.offset_minutes.unsigned_abs();
        let mut text = String::with_capacity(6);
        let _ = write!(text, "{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        text
    }

    /// The minutes east of UTC of an offset `Z`, `±hh`, `±hhmm` or `±hh:mm`; `None` for anything else.
    ///
    /// Hours go up to 24 and minutes to 59; `-00:00` is not an offset.
    /// Source: docs/reql-spec.md section 16.
    #[must_use]
    pub fn parse_offset(text: &str) -> Option<i16> {
        let bytes = text.as_bytes();
        let (sign, digits) = match bytes.split_first()? {
            (b'Z', []) => return Some(0),
            (b'+', rest) => (1, rest),
            (b'-', rest) => (-1, rest),
            _ => return None,
        };
        let (hours, minutes) = match *digits {
            [a, b] => (two_digits(a, b)?, 0),
            [a, b, c, d] | [a, b, b':', c, d] => (two_digits(a, b)?, two_digits(c, d)?),
            _ => return None,
        };
        let negative_zero = sign < 0 && hours == 0 && minutes == 0;
        if hours > 24 || minutes > 59 || negative_zero {
            return None;
        }
        Some(sign * (hours * 60 + minutes))
    }
}

/// `seconds`, rounded to milliseconds. A result rounds to itself: seconds that are the nearest double to whole milliseconds stay as
/// they are, although their product with 1000 may be nearer to the next ones after the year 140000.
fn whole_milliseconds(seconds: f64) -> f64 {
    let milliseconds = (seconds * 1000.0).round();
    let is_whole = |off: f64| (milliseconds + off) / 1000.0 == seconds;
    match [0.0, -1.0, 1.0].into_iter().any(is_whole) {
        true => seconds,
        false => milliseconds / 1000.0,
    }
}

fn two_digits(tens: u8, ones: u8) -> Option<i16> {
    if tens.is_ascii_digit() && ones.is_ascii_digit() {
        Some(i16::from(tens - b'0') * 10 + i16::from(ones - b'0'))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rounded_time_rounds_to_itself() {
        let mut seconds = 1_700_000_000.012_3;
        while seconds < ROUNDED_SECONDS_MAX {
            for step in 0..200 {
                for seconds in [seconds * (1.0 + f64::from(step) * 1.234_567e-4), -seconds] {
                    let once = Time::new(seconds, 0).epoch_seconds;
                    assert!((once - seconds).abs() < 0.002, "{seconds}");
                    assert_eq!(Time::new(once, 0).epoch_seconds, once, "{seconds}");
                }
            }
            seconds *= 1.021;
        }
        assert_eq!(Time::new(1.2345, 0).epoch_seconds, 1.235);
    }

    #[test]
    fn offsets_are_read_in_all_their_forms() {
        for (text, minutes) in [
            ("Z", Some(0)),
            ("+00:00", Some(0)),
            ("-07:00", Some(-420)),
            ("+0530", Some(330)),
            ("+05", Some(300)),
            ("+24:59", Some(1499)),
            ("-00:00", None),
            ("-00", None),
            ("+25:00", None),
            ("+00:60", None),
            ("+0:00", None),
            ("", None),
            ("z", None),
            ("+é1", None),
            ("+00:00 ", None),
        ] {
            assert_eq!(Time::parse_offset(text), minutes, "{text:?}");
        }
    }

    #[test]
    fn offsets_print_with_sign_hours_and_minutes() {
        assert_eq!(Time::new(0.0, -450).offset_text(), "-07:30");
        assert_eq!(Time::new(0.0, 0).offset_text(), "+00:00");
    }

    #[test]
    fn seconds_are_kept_to_the_millisecond() {
        assert_eq!(Time::new(1375445163.08832, 0).epoch_seconds, 1375445163.088);
        assert_eq!(Time::new(1e300, 0).epoch_seconds, 1e300);
    }
}
