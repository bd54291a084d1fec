//! How long changes are kept for changefeeds.

use std::time::Duration;

use super::setting::{ConfigError, Setting};
use super::value;

/// How long, and how many, changes are kept for changefeeds that continue after a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedRetention {
    /// The age up to which changes are kept; also how long a table keeps its changes after its last feed has ended.
    pub time: Duration,
    /// The size up to which the changes of all tables are kept on this server.
    pub bytes: u64,
}

impl Default for FeedRetention {
    fn default() -> FeedRetention {
        FeedRetention { time: Duration::from_secs(24 * 3600), bytes: 1 << 30 }
    }
}

/// Parses `24h`, `1024MB`, or both with a comma between them. A part that is not given has its default.
pub(super) fn parse(setting: &Setting) -> Result<FeedRetention, ConfigError> {
    let expected =
        || setting.wrong("expected a time (s, m, h or d), a size (MB or GB), or both, such as 24h,1024MB");
    let mut retention = FeedRetention::default();
    let (mut has_time, mut has_bytes) = (false, false);
    for part in value::text(setting).split(',') {
        let digits = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
        let (number, unit) = part.split_at(digits);
        let number: u64 = number.parse().ok().filter(|number| *number > 0).ok_or_else(expected)?;
        let is_repeated = match unit {
            "s" | "m" | "h" | "d" => {
                let seconds = number.checked_mul(seconds_of(unit)).ok_or_else(expected)?;
                retention.time = Duration::from_secs(seconds);
                std::mem::replace(&mut has_time, true)
            }
            "MB" | "GB" => {
                let megabytes = if unit == "GB" { number.checked_mul(1024) } else { Some(number) };
                let bytes = megabytes.and_then(|megabytes| megabytes.checked_mul(1 << 20));
                retention.bytes = bytes.ok_or_else(expected)?;
                std::mem::replace(&mut has_bytes, true)
            }
            _ => return Err(expected()),
        };
        if is_repeated {
            return Err(expected());
        }
    }
    Ok(retention)
}

fn seconds_of(unit: &str) -> u64 {
    match unit {
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retention(text: &str) -> Result<(u64, u64), String> {
        let parsed = parse(&Setting::flag("changefeed-retention", Some(text.to_owned())));
        let numbers = |found: FeedRetention| (found.time.as_secs(), found.bytes >> 20);
        parsed.map(numbers).map_err(|error| error.to_string())
    }

    #[test]
    fn a_time_and_a_size_in_any_order_or_alone() {
        assert_eq!(retention("90s"), Ok((90, 1024)));
        assert_eq!(retention("30m"), Ok((1800, 1024)));
        assert_eq!(retention("2d,5GB"), Ok((172_800, 5120)));
        assert_eq!(retention("1MB,1h"), Ok((3600, 1)));
        for wrong in [
            "",
            "5",
            "h",
            "1h,",
            "1h,2h",
            "1MB,1MB",
            "-1h",
            "1.5h",
            "0s",
            "0MB",
            "1 h",
            "99999999999999999999s",
        ] {
            assert_eq!(
                retention(wrong),
                Err(format!(
                    "--changefeed-retention {wrong}: expected a time (s, m, h or d), a size (MB or GB), or both, such as \
                     24h,1024MB"
                )),
            );
        }
        retention("18446744073709551615d").unwrap_err();
        retention("18446744073709551615GB").unwrap_err();
    }
}
