//! ISO 8601: parses and prints times.

use datum::Time;

use super::calendar::{DAY_MS, Date};
use super::digits::Digits;
use super::zone;
use crate::EvalError;

/// Parses the time in `text`. `default_zone` is used if the text has no zone.
///
/// Source, including the order of the checks: `sanitize` in pseudo_time.cc of RethinkDB 2.4.
pub fn parse(text: &str, default_zone: Option<&str>) -> Result<Time, EvalError> {
    let (date, rest) = text.split_once('T').unwrap_or((text, "00"));
    let zone_at = ['-', '+', 'Z'].into_iter().find_map(|sign| rest.find(sign));
    let (clock, zone) = rest.split_at(zone_at.unwrap_or(rest.len()));
    let date = read_date(date)?;
    let clock_read = read_clock(clock)?;
    let zone = if zone_at.is_some() { Some(zone::parse(zone)?) } else { None };
    let days = date.days()?;
    let zone = match (zone, default_zone) {
        (Some(zone), _) => zone,
        (None, default) => default_zone_of(default.unwrap_or_default())?,
    };
    zone::check(zone)?;
    let days_s = days * 86_400 - i64::from(zone) * 60;
    Ok(Time::new(days_s as f64 + clock_read.seconds(), zone))
}

/// The zone to use for a text without one. Source: `sanitize_boost_tz` in pseudo_time.cc of RethinkDB 2.4.
fn default_zone_of(text: &str) -> Result<i16, EvalError> {
    match text {
        "" | "UTC" => {
            Err(EvalError::logic("ISO 8601 string has no time zone, and no default time zone was provided."))
        }
        _ if text.starts_with(|first: char| first.is_alphabetic()) && text != "Z" => {
            Err(EvalError::logic(format!("Invalid ISO 8601 timezone: `{text}+00`.")))
        }
        _ => zone::parse(text),
    }
}

/// `YYYY-MM-DDThh:mm:ss[.mmm]±hh:mm`
pub fn print(time: &Time) -> Result<String, EvalError> {
    zone::check(time.offset_minutes)?;
    let local_ms = local_ms(time);
    let date = Date::from_days(local_ms.div_euclid(DAY_MS))?;
    if date.year > 9999 {
        let year = date.year;
        return Err(EvalError::logic(format!("Year `{year}` out of valid ISO 8601 range [0, 9999].")));
    }
    let ms = local_ms.rem_euclid(DAY_MS);
    let fraction = match ms % 1_000 {
        0 => String::new(),
        thousandths => format!(".{thousandths:03}"),
    };
    Ok(format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}{}",
        date.year,
        date.month,
        date.day,
        ms / 3_600_000,
        ms / 60_000 % 60,
        ms / 1_000 % 60,
        time.offset_text(),
    ))
}

/// Milliseconds since 1970-01-01T00:00:00 in the local time of the time's zone.
pub fn local_ms(time: &Time) -> i64 {
    // A time too large for the cast is outside the calendar anyway.
    let utc_ms = (time.epoch_seconds * 1000.0).round() as i64;
    utc_ms.saturating_add(i64::from(time.offset_minutes) * 60_000)
}

/// A parsed date.
enum DateRead {
    MonthDay(i64, i64, i64),
    DayOfYear(i64, i64),
    /// A week date, which is not supported.
    Week,
}

impl DateRead {
    /// Days since 1970-01-01.
    fn days(&self) -> Result<i64, EvalError> {
        match *self {
            DateRead::MonthDay(year, month, day) => Date::new(year, month, day).map(|date| date.days()),
            DateRead::DayOfYear(year, day) => Date::of_year(year, day).map(|date| date.days()),
            DateRead::Week => Err(EvalError::logic(
                "Due to limitations in the boost time library we use for parsing, we cannot support \
                 ISO week dates right now.  Sorry about that!  Please use years, calendar dates, or \
                 ordinal dates instead.",
            )),
        }
    }
}

/// Parses `YYYY`, `YYYY-MM`, `YYYY-MM-DD`, `YYYYMMDD`, `YYYY-DDD`, `YYYYDDD`, or a week date.
fn read_date(text: &str) -> Result<DateRead, EvalError> {
    let mut digits = Digits::of(text);
    let year = i64::from(digits.number(4)?);
    if digits.at_end() {
        return Ok(DateRead::MonthDay(year, 1, 1));
    }
    let has_hyphen = digits.skip('-');
    let date = if digits.skip('W') {
        digits.number(2)?;
        if !digits.at_end() {
            digits.skip('-');
            digits.number(1)?;
        }
        DateRead::Week
    } else if digits.rest.len() == 3 {
        DateRead::DayOfYear(year, digits.number(3)?.into())
    } else {
        let month = digits.number(2)?.into();
        if has_hyphen && digits.at_end() {
            return Ok(DateRead::MonthDay(year, month, 1));
        }
        if digits.skip('-') != has_hyphen {
            return Err(EvalError::logic(format!("Date string `{text}` must have 0 or 2 hyphens.")));
        }
        DateRead::MonthDay(year, month, digits.number(2)?.into())
    };
    digits.end("date")?;
    Ok(date)
}

/// A parsed time of day.
struct ClockRead {
    hours: i64,
    minutes: i64,
    seconds: f64,
}

impl ClockRead {
    /// Seconds since midnight. Values beyond the usual range carry over into the next minute, hour or day; like
    /// RethinkDB, this does not check them.
    fn seconds(&self) -> f64 {
        (self.hours * 3_600 + self.minutes * 60) as f64 + self.seconds
    }
}

/// Parses `hh`, `hh:mm`, `hh:mm:ss`, or the same without colons; seconds may have a fraction.
fn read_clock(text: &str) -> Result<ClockRead, EvalError> {
    let mut digits = Digits::of(text);
    let mut clock = ClockRead { hours: digits.number(2)?.into(), minutes: 0, seconds: 0.0 };
    if digits.at_end() {
        return Ok(clock);
    }
    let has_colon = digits.skip(':');
    clock.minutes = digits.number(2)?.into();
    if digits.at_end() {
        return Ok(clock);
    }
    if digits.skip(':') != has_colon {
        return Err(EvalError::logic(format!("Time string `{text}` must have 0 or 2 colons.")));
    }
    clock.seconds = f64::from(digits.number(2)?) + digits.fraction()?;
    digits.end("time")?;
    Ok(clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATES: [&str; 6] = ["2013", "2013-01", "2013-01-01", "20130101", "2013-001", "2013001"];
    const CLOCKS: [&str; 7] =
        ["13", "13:00", "1300", "13:00:00", "13:00:00.", "13:00:00.000000", "130000.000000"];
    const ZONES: [&str; 4] = ["Z", "+00", "+0000", "+00:00"];

    #[test]
    fn every_spelling_of_an_instant_is_that_instant() {
        for date in DATES {
            for clock in CLOCKS {
                for zone in ZONES {
                    let text = format!("{date}T{clock}{zone}");
                    let time = parse(&text, None).unwrap_or_else(|error| panic!("{error}"));
                    assert_eq!(print(&time).ok().as_deref(), Some("2013-01-01T13:00:00+00:00"));
                }
            }
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        for date in ["201301", "2013-0101", "2a13", "2013+01", "2013-01-01.1", "2013-01-", "2013-1", ""] {
            assert!(parse(&format!("{date}T13Z"), None).is_err(), "{date}");
        }
        for clock in ["a3", "13:0000", "13:000", "13:00.00", "130000.00000000a", "1300:00", "13:", ""] {
            assert!(parse(&format!("2013T{clock}Z"), None).is_err(), "{clock}");
        }
        for zone in ["X", "-7", "-07:-1", "+07+01", "PST", "UTC", "Z+00"] {
            assert!(parse(&format!("2013T13{zone}"), None).is_err(), "{zone}");
        }
    }

    #[track_caller]
    fn message(text: &str) -> String {
        parse(text, None).expect_err(text).to_string()
    }

    #[test]
    fn invalid_times_get_the_reference_messages() {
        assert_eq!(message("2013-0101T13Z"), "Date string `2013-0101` must have 0 or 2 hyphens.");
        assert_eq!(message("2a13T13Z"), "Invalid date string `2a13` (got `a` but expected a digit).");
        assert_eq!(message("2013T13:0000Z"), "Time string `13:0000` must have 0 or 2 colons.");
        assert_eq!(message("2013T1300:00Z"), "Time string `1300:00` must have 0 or 2 colons.");
        assert_eq!(
            message("2013-01-01.1T13Z"),
            "Garbage characters `.1` at end of date string `2013-01-01.1`."
        );
        assert_eq!(
            message("2013T130000.0aZ"),
            "Invalid date string `130000.0a` (got `a` but expected a digit)."
        );
        assert_eq!(message("2013T1300001Z"), "Garbage characters `1` at end of time string `1300001`.");
        assert_eq!(
            message("2013T13"),
            "ISO 8601 string has no time zone, and no default time zone was provided."
        );
        assert!(message("2013-W01T13Z").starts_with("Due to limitations in the boost"));
    }

    #[test]
    fn a_default_zone_is_used_only_when_there_is_none() {
        let time = parse("2013-07-30T20:56:05", Some("-07")).expect("a legal time");
        assert_eq!(print(&time).ok().as_deref(), Some("2013-07-30T20:56:05-07:00"));
        let time = parse("2013-07-30", Some("-07")).expect("a legal time");
        assert_eq!(print(&time).ok().as_deref(), Some("2013-07-30T00:00:00-07:00"));
        let time = parse("2013-07-30T20:56:05+01:00", Some("-07")).expect("a legal time");
        assert_eq!(time.epoch_seconds, 1375214165.0);
    }

    #[test]
    fn fractions_print_to_the_millisecond() {
        for (epoch, text) in [
            (1.4444445, "1970-01-01T00:00:01.444+00:00"),
            (1.001, "1970-01-01T00:00:01.001+00:00"),
            (2.058, "1970-01-01T00:00:02.058+00:00"),
            (-0.5, "1969-12-31T23:59:59.500+00:00"),
        ] {
            assert_eq!(print(&Time::new(epoch, 0)).ok().as_deref(), Some(text));
        }
    }

    #[test]
    fn more_than_a_clock_shows_is_of_a_later_day() {
        for (text, same) in [
            ("2000-01-01T25:00:00Z", "2000-01-02T01:00:00+00:00"),
            ("2000-01-01T00:60:00Z", "2000-01-01T01:00:00+00:00"),
            ("2000-01-01T00:00:99Z", "2000-01-01T00:01:39+00:00"),
            ("2001-366T00Z", "2002-01-01T00:00:00+00:00"),
        ] {
            let time = parse(text, None).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(print(&time).ok().as_deref(), Some(same), "{text}");
        }
    }

    #[test]
    fn invalid_default_zones_get_the_reference_messages() {
        let none = "ISO 8601 string has no time zone, and no default time zone was provided.";
        for (zone, wrong) in [("", none), ("UTC", none), ("foo", "Invalid ISO 8601 timezone: `foo+00`.")] {
            assert_eq!(parse("2013-07-30", Some(zone)).expect_err(zone).to_string(), wrong);
            assert!(parse("2013-07-30T00Z", Some(zone)).is_ok());
        }
    }
}
