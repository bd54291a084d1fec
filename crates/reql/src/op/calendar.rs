//! The proleptic Gregorian calendar: dates to days since 1970-01-01 and back.
//!
//! Pure arithmetic below the time terms. The range of years and the error messages are RethinkDB's.

use crate::EvalError;

/// The first year a date can have.
const YEAR_MIN: i64 = 1400;
/// The last year a date can have.
const YEAR_MAX: i64 = 10_000;
/// Milliseconds of a day.
pub const DAY_MS: i64 = 86_400_000;

/// One day of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// Within the years the calendar covers.
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// 1 to 31.
    pub day: i64,
}

impl Date {
    /// The date, unless there is no such day.
    pub fn new(year: i64, month: i64, day: i64) -> Result<Date, EvalError> {
        check_year(year)?;
        if !(1..=12).contains(&month) {
            return Err(time_logic("Month number is out of range 1..12"));
        }
        if !(1..=31).contains(&day) {
            return Err(time_logic("Day of month value is out of range 1..31"));
        }
        if day > days_in_month(year, month) {
            return Err(time_logic("Day of month is not valid for year"));
        }
        Ok(Date { year, month, day })
    }

    /// Day `ordinal` (from 1) of `year`. Day 366 is accepted in every year, as in RethinkDB: in most years it is
    /// the first day of the next.
    pub fn of_year(year: i64, ordinal: i64) -> Result<Date, EvalError> {
        check_year(year)?;
        if !(1..=366).contains(&ordinal) {
            return Err(time_logic("Day of year value is out of range 1..366"));
        }
        let january_first = Date { year, month: 1, day: 1 };
        Ok(from_days(january_first.days() + ordinal - 1))
    }

    /// The date that is `days` after 1970-01-01, unless its year is outside the calendar.
    pub fn from_days(days: i64) -> Result<Date, EvalError> {
        // Avoids overflow; both limits are outside the calendar anyway.
        let date = from_days(days.clamp(-10_000_000, 10_000_000));
        check_year(date.year)?;
        Ok(date)
    }

    /// Days since 1970-01-01.
    pub fn days(self) -> i64 {
        // Counts years from March, so that a leap day is the last day of a year.
        let year = self.year - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let month_from_march = (self.month + 9) % 12;
        let day_of_year = (153 * month_from_march + 2) / 5 + self.day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * 146_097 + day_of_era - 719_468
    }

    /// The day of the year, from 1.
    pub fn ordinal(self) -> i64 {
        self.days() - Date { year: self.year, month: 1, day: 1 }.days() + 1
    }

    /// Monday is 1, Sunday is 7.
    pub fn weekday(self) -> i64 {
        // 1970-01-01 was a Thursday.
        (self.days() + 3).rem_euclid(7) + 1
    }
}

fn from_days(days: i64) -> Date {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    Date { year: year_of_era + era * 400 + i64::from(month <= 2), month, day }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

fn check_year(year: i64) -> Result<(), EvalError> {
    if (YEAR_MIN..=YEAR_MAX).contains(&year) {
        return Ok(());
    }
    Err(time_logic(&format!("Year is out of valid range: {YEAR_MIN}..{YEAR_MAX}")))
}

fn time_logic(what: &str) -> EvalError {
    EvalError::logic(format!("Error in time logic: {what}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_the_calendar_comes_back_and_follows_the_one_before() {
        let first = Date { year: YEAR_MIN, month: 1, day: 1 }.days();
        let last = Date { year: YEAR_MAX, month: 12, day: 31 }.days();
        let mut before = from_days(first - 1);
        for days in first..=last {
            let date = from_days(days);
            assert_eq!(date.days(), days);
            let next_day = (date.year, date.month, date.day - 1) == (before.year, before.month, before.day);
            assert!(next_day || date.day == 1 && before.day == days_in_month(before.year, before.month));
            before = date;
        }
    }

    #[test]
    fn known_days_have_known_numbers() {
        assert_eq!(Date { year: 1970, month: 1, day: 1 }.days(), 0);
        assert_eq!(Date { year: 2013, month: 7, day: 30 }.days(), 15_916);
        assert_eq!(Date { year: 2013, month: 7, day: 30 }.weekday(), 2);
        assert_eq!(Date { year: 2013, month: 7, day: 30 }.ordinal(), 211);
        assert_eq!(Date { year: 2000, month: 12, day: 31 }.ordinal(), 366);
        assert_eq!(Date { year: 1969, month: 12, day: 28 }.weekday(), 7);
    }

    #[track_caller]
    fn refused(date: Result<Date, EvalError>, what: &str) {
        let error = date.expect_err("there is no such day");
        assert_eq!(error.to_string(), format!("Error in time logic: {what}."));
    }

    #[test]
    fn days_that_do_not_exist_are_refused() {
        refused(Date::new(1399, 1, 1), "Year is out of valid range: 1400..10000");
        refused(Date::new(10_001, 1, 1), "Year is out of valid range: 1400..10000");
        refused(Date::new(2013, 13, 1), "Month number is out of range 1..12");
        refused(Date::new(2013, 0, 1), "Month number is out of range 1..12");
        refused(Date::new(2013, 1, 32), "Day of month value is out of range 1..31");
        refused(Date::new(2013, 2, 29), "Day of month is not valid for year");
        assert!(Date::new(2012, 2, 29).is_ok());
        refused(Date::new(1900, 2, 29), "Day of month is not valid for year");
        refused(Date::of_year(2013, 367), "Day of year value is out of range 1..366");
        refused(Date::of_year(2013, 0), "Day of year value is out of range 1..366");
        assert_eq!(Date::of_year(2012, 366).ok(), Date::new(2012, 12, 31).ok());
    }
}
