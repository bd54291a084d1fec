//! Zone offsets as people write them: `Z`, `±hh`, `±hhmm`, `±hh:mm`.

use datum::Time;

use crate::EvalError;

/// Minutes east of UTC, or the words for what is wrong with `text`.
pub fn parse(text: &str) -> Result<i16, EvalError> {
    match Time::parse_offset(text) {
        Some(offset_minutes) => Ok(offset_minutes),
        None => Err(EvalError::logic(fault(text))),
    }
}

/// Why `text` is not an offset.
fn fault(text: &str) -> String {
    if !text.starts_with(['-', '+']) {
        return format!("Timezone `{text}` does not start with `-` or `+`.");
    }
    match digits(&text.as_bytes()[1..]) {
        Some((hours, _)) if hours > 24 => format!("Hours out of range in `{text}`."),
        Some((_, minutes)) if minutes > 59 => format!("Minutes out of range in `{text}`."),
        Some(_) => format!("`{text}` is not a valid time offset."),
        None => format!(
            "Invalid time zone string `{text}`. Valid time zones are `+hh:mm`, `-hh:mm`, \
             `+hhmm`, `-hhmm`, `+hh`, `-hh` and `Z`."
        ),
    }
}

/// Hours and minutes of `hh`, `hhmm` or `hh:mm`.
fn digits(text: &[u8]) -> Option<(u8, u8)> {
    match *text {
        [a, b] => Some((pair(a, b)?, 0)),
        [a, b, c, d] | [a, b, b':', c, d] => Some((pair(a, b)?, pair(c, d)?)),
        _ => None,
    }
}

fn pair(tens: u8, ones: u8) -> Option<u8> {
    let both = tens.is_ascii_digit() && ones.is_ascii_digit();
    both.then(|| (tens - b'0') * 10 + (ones - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_an_offset_is_said() {
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
        for text in ["-7", "-07:-1", "+07+01", "+07:0", "+é1"] {
            let message = parse(text).expect_err(text).to_string();
            assert!(message.starts_with("Invalid time zone string `"), "{message}");
        }
    }
}
