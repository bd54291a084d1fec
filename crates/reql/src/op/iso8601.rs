//! ISO 8601: times read from text and written as text.

use datum::Time;

use super::calendar::{DAY_MS, Date};
use super::zone;
use crate::EvalError;

/// The time that `text` stands for. `default_zone` is used when the text names none.
pub fn parse(text: &str, default_zone: Option<&str>) -> Result<Time, EvalError> {
    let (date, rest) = text.split_once('T').unwrap_or((text, "00"));
    let (clock, zone) = rest.split_at(rest.find(['Z', '-', '+']).unwrap_or(rest.len()));
    let date = parse_date(date)?;
    let seconds = parse_clock(clock)?;
    let zone = match (zone, default_zone) {
        ("", None) => {
            return Err(EvalError::logic(
                "ISO 8601 string has no time zone, and no default time zone was provided.",
            ));
        }
        ("", Some(default)) => zone::parse(default)?,
        (zone, _) => zone::parse(zone)?,
    };
    let days_s = date.days() * 86_400 - i64::from(zone) * 60;
    Ok(Time::new(days_s as f64 + seconds, zone))
}

/// `YYYY-MM-DDThh:mm:ss[.mmm]±hh:mm`
pub fn print(time: &Time) -> Result<String, EvalError> {
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

/// Milliseconds since 1970-01-01T00:00:00 as the clocks of the time's zone show it.
pub fn local_ms(time: &Time) -> i64 {
    // A time too far away for the cast is outside the calendar either way.
    let utc_ms = (time.epoch_seconds * 1000.0).round() as i64;
    utc_ms.saturating_add(i64::from(time.offset_minutes) * 60_000)
}

/// `YYYY`, `YYYY-MM`, `YYYY-MM-DD`, `YYYYMMDD`, `YYYY-DDD` or `YYYYDDD`.
fn parse_date(text: &str) -> Result<Date, EvalError> {
    if text.contains('W') {
        return Err(EvalError::logic(
            "Due to limitations in the boost time library we use for parsing, we cannot support \
             ISO week dates right now.  Sorry about that!  Please use years, calendar dates, or \
             ordinal dates instead.",
        ));
    }
    let mut reader = Reader::new(text, "date");
    let year = reader.digits(4)?;
    if reader.at_end() {
        return Date::new(year, 1, 1);
    }
    let has_hyphen = reader.skip('-');
    let two = reader.digits(2)?;
    if has_hyphen && (reader.at_end() || reader.skip('-')) {
        let day = if reader.at_end() && !text.ends_with('-') { 1 } else { reader.digits(2)? };
        reader.end()?;
        return Date::new(year, two, day);
    }
    let three = two * 10 + reader.digits(1)?;
    if reader.at_end() {
        return Date::of_year(year, three);
    }
    if has_hyphen && reader.at_digit() {
        return Err(EvalError::logic(format!("Date string `{text}` must have 0 or 2 hyphens.")));
    }
    if has_hyphen {
        reader.end()?;
    }
    let four = three % 10 * 10 + reader.digits(1)?;
    reader.end()?;
    Date::new(year, two, four)
}

/// `hh`, `hh:mm`, `hh:mm:ss`, or without colons; seconds may have a fraction.
fn parse_clock(text: &str) -> Result<f64, EvalError> {
    let mut reader = Reader::new(text, "time");
    let hours = reader.digits(2)?;
    let mut minutes = 0;
    let mut seconds = 0.0;
    let colons = reader.skip(':');
    if colons || reader.at_digit() {
        minutes = reader.digits(2)?;
        let another = reader.skip(':');
        if another != colons && (another || reader.at_digit()) {
            return Err(EvalError::logic(format!("Time string `{text}` must have 0 or 2 colons.")));
        }
        if another || reader.at_digit() {
            seconds = reader.digits(2)? as f64 + reader.fraction()?;
        }
    }
    reader.end()?;
    if hours > 24 || minutes > 59 || seconds >= 61.0 {
        return Err(EvalError::logic(format!("Error in time logic: No such time `{text}`.")));
    }
    Ok((hours * 3_600 + minutes * 60) as f64 + seconds)
}

/// Reads a date or a time of day from left to right.
struct Reader<'t> {
    whole: &'t str,
    rest: &'t str,
    what: &'static str,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str, what: &'static str) -> Self {
        Reader { whole: text, rest: text, what }
    }

    fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn at_digit(&self) -> bool {
        self.rest.starts_with(|c: char| c.is_ascii_digit())
    }

    fn skip(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// The number that the next `count` digits are.
    fn digits(&mut self, count: usize) -> Result<i64, EvalError> {
        let mut number = 0;
        for _ in 0..count {
            let whole = self.whole;
            let Some(next) = self.rest.chars().next() else {
                return Err(EvalError::logic(format!("Truncated date string `{whole}`.")));
            };
            let Some(digit) = next.to_digit(10) else {
                return Err(EvalError::logic(format!(
                    "Invalid date string `{whole}` (got `{next}` but expected a digit)."
                )));
            };
            number = number * 10 + i64::from(digit);
            self.rest = &self.rest[1..];
        }
        Ok(number)
    }

    /// What a point and digits after it add, if they are there.
    fn fraction(&mut self) -> Result<f64, EvalError> {
        let point = self.rest;
        if !self.skip('.') {
            return Ok(0.0);
        }
        self.digits(1)?;
        let more = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        self.rest = &self.rest[more..];
        let text = &point[..point.len() - self.rest.len()];
        // A point and digits always are a number.
        Ok(text.parse().unwrap_or(0.0))
    }

    fn end(&self) -> Result<(), EvalError> {
        if self.at_end() {
            return Ok(());
        }
        let Reader { whole, rest, what } = self;
        Err(EvalError::logic(format!("Garbage characters `{rest}` at end of {what} string `{whole}`.")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATES: [&str; 6] = ["2013", "2013-01", "2013-01-01", "20130101", "2013-001", "2013001"];
    const CLOCKS: [&str; 6] = ["13", "13:00", "1300", "13:00:00", "13:00:00.000000", "130000.000000"];
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
        for clock in [
            "a3",
            "13:0000",
            "13:000",
            "13:00.00",
            "130000.00000000a",
            "1300:00",
            "13:",
            "25",
            "",
            "13:00:00.",
        ] {
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
    fn refusals_say_what_is_wrong() {
        assert_eq!(message("2013-0101T13Z"), "Date string `2013-0101` must have 0 or 2 hyphens.");
        assert_eq!(message("2a13T13Z"), "Invalid date string `2a13` (got `a` but expected a digit).");
        assert_eq!(message("2013T13:0000Z"), "Time string `13:0000` must have 0 or 2 colons.");
        assert_eq!(message("2013T1300:00Z"), "Time string `1300:00` must have 0 or 2 colons.");
        assert_eq!(
            message("2013-01-01.1T13Z"),
            "Garbage characters `.1` at end of date string `2013-01-01.1`."
        );
        assert_eq!(message("2013T130000.0aZ"), "Garbage characters `a` at end of time string `130000.0a`.");
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
}
