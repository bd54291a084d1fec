//! Options of a time and a size.

use std::time::Duration;

use super::setting::{ConfigError, Setting};
use super::value;

/// Parses a time such as `24h`, a size such as `1024MB`, or both with a comma between them. A part that is not given is that of
/// `defaults`. `example` stands in the error.
pub(super) fn parse(
    setting: &Setting,
    defaults: (Duration, u64),
    example: &str,
) -> Result<(Duration, u64), ConfigError> {
    let expected = || {
        setting
            .wrong(format!("expected a time (s, m, h or d), a size (MB or GB), or both, such as {example}"))
    };
    let (mut time, mut bytes) = defaults;
    let (mut has_time, mut has_bytes) = (false, false);
    for part in value::text(setting).split(',') {
        let digits = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
        let (number, unit) = part.split_at(digits);
        let number: u64 = number.parse().ok().filter(|number| *number > 0).ok_or_else(expected)?;
        let is_repeated = match unit {
            "s" | "m" | "h" | "d" => {
                let seconds = number.checked_mul(seconds_of(unit)).ok_or_else(expected)?;
                time = Duration::from_secs(seconds);
                std::mem::replace(&mut has_time, true)
            }
            "MB" | "GB" => {
                let megabytes = if unit == "GB" { number.checked_mul(1024) } else { Some(number) };
                let size = megabytes.and_then(|megabytes| megabytes.checked_mul(1 << 20));
                bytes = size.ok_or_else(expected)?;
                std::mem::replace(&mut has_bytes, true)
            }
            _ => return Err(expected()),
        };
        if is_repeated {
            return Err(expected());
        }
    }
    Ok((time, bytes))
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

    fn parsed(text: &str) -> Result<(u64, u64), String> {
        let defaults = (Duration::from_secs(24 * 3600), 1 << 30);
        let setting = Setting::flag("changefeed-retention", Some(text.to_owned()));
        let parsed = parse(&setting, defaults, "24h,1024MB");
        let numbers = |(time, bytes): (Duration, u64)| (time.as_secs(), bytes >> 20);
        parsed.map(numbers).map_err(|error| error.to_string())
    }

    #[test]
    fn a_time_and_a_size_in_any_order_or_alone() {
        assert_eq!(parsed("90s"), Ok((90, 1024)));
        assert_eq!(parsed("30m"), Ok((1800, 1024)));
        assert_eq!(parsed("2d,5GB"), Ok((172_800, 5120)));
        assert_eq!(parsed("1MB,1h"), Ok((3600, 1)));
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
                parsed(wrong),
                Err(format!(
                    "--changefeed-retention {wrong}: expected a time (s, m, h or d), a size (MB or GB), or both, such as \
                     24h,1024MB"
                )),
            );
        }
        parsed("18446744073709551615d").unwrap_err();
        parsed("18446744073709551615GB").unwrap_err();
    }
}
