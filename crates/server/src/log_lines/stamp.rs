//! Formats and parses a line of the log file: time in UTC, uptime, level, message.

use std::fmt;
use std::time::Duration;

use query::{LogLevel, LogLine};

/// A time since 1970, displayed as `2026-01-02T03:04:05.000006`.
pub(super) struct Stamp(pub Duration);

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let micros = self.0.subsec_micros();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}")
    }
}

/// The line in the file, with its newline.
pub(super) fn line(line: &LogLine) -> String {
    let LogLine { at, uptime, level, message } = line;
    let (seconds, micros) = (uptime.as_secs(), uptime.subsec_micros());
    format!("{} {seconds}.{micros:06}s {}: {message}\n", Stamp(*at), level.name())
}

/// Parses a line of the file; `None` if [`line`] did not write it.
pub(super) fn read(text: &str) -> Option<LogLine> {
    let (at, rest) = text.split_once(' ')?;
    let (uptime, rest) = rest.split_once("s ")?;
    let (level, message) = rest.split_once(": ")?;
    let (seconds, micros) = uptime.split_once('.')?;
    Some(LogLine {
        at: moment(at)?,
        uptime: Duration::new(seconds.parse().ok()?, 0) + micros_of(micros)?,
        level: LogLevel::named(level)?,
        message: message.into(),
    })
}

/// Parses the format of [`Stamp`].
fn moment(text: &str) -> Option<Duration> {
    let (date, time) = text.split_once('T')?;
    let (time, micros) = time.split_once('.')?;
    let mut numbers = date.split('-').chain(time.split(':')).map(|part| part.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    let (year, month, day) = (next()?, next()?, next()?);
    let (hour, minute, second) = (next()?, next()?, next()?);
    let seconds = days(year, month, day)? * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Duration::new(seconds, 0) + micros_of(micros)?)
}

fn micros_of(text: &str) -> Option<Duration> {
    (text.len() == 6).then(|| text.parse().ok().map(Duration::from_micros)).flatten()
}

/// Days from 1970-01-01 to a date of that year or later: the inverse of [`date`].
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some((era * 146_097 + day_of_era).saturating_sub(719_468))
}

/// Year, month and day of a number of days after 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    // Counts from 1 March of year 0, so that a leap day is the last day of its year; 400 years have 146 097 days.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        let shown = |seconds| Stamp(Duration::new(seconds, 6_000)).to_string();
        assert_eq!(shown(0), "1970-01-01T00:00:00.000006");
        assert_eq!(shown(951_782_400), "2000-02-29T00:00:00.000006");
        assert_eq!(shown(1_709_251_199), "2024-02-29T23:59:59.000006");
        assert_eq!(shown(4_102_444_800), "2100-01-01T00:00:00.000006");
        for seconds in [0, 951_782_400, 1_709_251_199, 4_102_444_800] {
            let at = Duration::new(seconds, 6_000);
            assert_eq!(moment(&Stamp(at).to_string()), Some(at));
        }
    }

    #[test]
    fn other_text_is_not_parsed_as_a_line() {
        let good = "2026-01-02T03:04:05.000006 1.234567s notice: Server ready, \"a: b\"";
        let read_back = read(good).map(|found| line(&found));
        assert_eq!(read_back, Some(format!("{good}\n")));
        for bad in ["", "x", "2026-01-02T03:04:05.000006 1.2s loud: x", "0000-00-00T0:0:0.0 0.0s warn: x"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
