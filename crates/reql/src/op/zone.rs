//! Zone offsets: `Z`, `±hh`, `±hhmm`, `±hh:mm`.

use super::digits::Digits;
use crate::EvalError;

/// Minutes east of UTC. Source: `sanitize::tz` in pseudo_time.cc of RethinkDB 2.4.
pub fn parse(text: &str) -> Result<i16, EvalError> {
    let mut digits = Digits::of(text);
    let sign = match text {
        "Z" => return Ok(0),
        "-00" | "-00:00" => {
            return Err(not_valid(text));
        }
        _ if digits.skip('-') => -1,
        _ if digits.skip('+') => 1,
        _ => {
            return Err(EvalError::logic(format!("Timezone `{text}` does not start with `-` or `+`.")));
        }
    };
    let hours = digits.number(2)?;
    let mut minutes = 0;
    if !digits.at_end() {
        digits.skip(':');
        minutes = digits.number(2)?;
        digits.end("timezone")?;
    }
    if hours > 24 {
        return Err(EvalError::logic(format!("Hours out of range in `{text}`.")));
    }
    if minutes > 59 {
        return Err(EvalError::logic(format!("Minutes out of range in `{text}`.")));
    }
    Ok(sign * (hours * 60 + minutes))
}

/// The error for an invalid offset.
pub fn not_valid(text: &str) -> EvalError {
    EvalError::logic(format!("`{text}` is not a valid time offset."))
}

/// Fails for an offset that no zone has. [`parse`] accepts it, but local times in it cannot be computed.
///
/// Source: `posix_time_zone` in Boost.
pub fn check(minutes: i16) -> Result<(), EvalError> {
    if (-12 * 60..=14 * 60).contains(&minutes) {
        return Ok(());
    }
    let (sign, minutes) = (if minutes < 0 { "-" } else { "" }, minutes.abs());
    let (hours, minutes) = (minutes / 60, minutes % 60);
    Err(EvalError::logic(format!(
        "Error in time logic: Offset out of range: {sign}{hours:02}:{minutes:02}:00."
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_offsets_get_the_reference_messages() {
        for (text, message) in [
            ("", "Timezone `` does not start with `-` or `+`."),
            ("UTC+00", "Timezone `UTC+00` does not start with `-` or `+`."),
            ("Z+00", "Timezone `Z+00` does not start with `-` or `+`."),
            ("-00", "`-00` is not a valid time offset."),
            ("-00:00", "`-00:00` is not a valid time offset."),
            ("+00:60", "Minutes out of range in `+00:60`."),
            ("+25:00", "Hours out of range in `+25:00`."),
        ] {
            assert_eq!(parse(text).expect_err(text).to_string(), message);
        }
        assert_eq!(parse("-0000").ok(), Some(0));
        for text in ["-7", "+", "+07:0"] {
            let message = parse(text).expect_err(text).to_string();
            assert!(message.starts_with(&format!("Invalid time zone string `{text}`. Valid")), "{message}");
        }
        for (text, found) in [("-07:-1", '-'), ("+07+01", '+'), ("+é1", 'é'), ("+ab", 'a')] {
            let message = format!("Invalid date string `{text}` (got `{found}` but expected a digit).");
            assert_eq!(parse(text).expect_err(text).to_string(), message);
        }
        for (text, more) in [("+00:000", "0"), ("+0000x", "x"), ("+00:00Z", "Z")] {
            let message = format!("Garbage characters `{more}` at end of timezone string `{text}`.");
            assert_eq!(parse(text).expect_err(text).to_string(), message);
        }
    }

    #[test]
    fn clocks_are_set_to_zones_between_the_date_lines() {
        for (text, what) in [("+14:01", "14:01:00"), ("-12:30", "-12:30:00"), ("+24:59", "24:59:00")] {
            let message = format!("Error in time logic: Offset out of range: {what}.");
            assert_eq!(parse(text).and_then(check).expect_err(text).to_string(), message);
        }
        for text in ["+14:00", "-12:00", "Z"] {
            assert!(parse(text).and_then(check).is_ok(), "{text}");
        }
    }
}
