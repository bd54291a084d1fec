//! Components of a time in its own zone: date, time of day, year, …, seconds; and the names of days and months.

use datum::{Datum, Time};

use super::calendar::{DAY_MS, Date};
use super::iso8601::local_ms;
use super::{time, zone};
use crate::EvalError;
use crate::args::Args;

/// `date`: the beginning of the time's day.
pub fn date(args: &Args<'_>) -> Result<Datum, EvalError> {
    let time = time::of(args, 0)?;
    let midnight_s = date_of(time)?.days() * 86_400 - i64::from(time.offset_minutes) * 60;
    Ok(Datum::Time(Time::new(midnight_s as f64, time.offset_minutes)))
}

/// `time_of_day`: the seconds since the beginning of the time's day.
pub fn time_of_day(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Number(day_ms(args)? as f64 / 1_000.0))
}

/// `year`: the year, such as 2013.
pub fn year(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Number(date_of(time::of(args, 0)?)?.year as f64))
}

/// `month`: the month; January is 1.
pub fn month(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Number(date_of(time::of(args, 0)?)?.month as f64))
}

/// `day`: the day of the month, from 1.
pub fn day(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Number(date_of(time::of(args, 0)?)?.day as f64))
}

/// `day_of_week`: the day of the week; Monday is 1 and Sunday 7.
pub fn day_of_week(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Number(date_of(time::of(args, 0)?)?.weekday() as f64))
}

/// `day_of_year`: the day of the year, from 1.
pub fn day_of_year(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Number(date_of(time::of(args, 0)?)?.ordinal() as f64))
}

/// `hours`: the hour of the day, 0 to 23.
pub fn hours(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Number((day_ms(args)? / 3_600_000) as f64))
}

/// `minutes`: the minute of the hour.
pub fn minutes(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Number((day_ms(args)? / 60_000 % 60) as f64))
}

/// `seconds`: the second of the minute, with its fraction.
pub fn seconds(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Number((day_ms(args)? % 60_000) as f64 / 1_000.0))
}

fn date_of(time: &Time) -> Result<Date, EvalError> {
    zone::check(time.offset_minutes)?;
    Date::from_days(local_ms(time).div_euclid(DAY_MS))
}

/// Milliseconds since the beginning of the day, for times within the calendar.
fn day_ms(args: &Args<'_>) -> Result<i64, EvalError> {
    let time = time::of(args, 0)?;
    date_of(time)?;
    Ok(local_ms(time).rem_euclid(DAY_MS))
}
