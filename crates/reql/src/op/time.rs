//! Terms that make times, show them in zones and compare them.

use datum::{Datum, Text, Time};

use super::calendar::Date;
use super::{iso8601, zone};
use crate::EvalError;
use crate::args::{Arg, Args};

/// `iso8601`: parses the time in ISO 8601 text.
pub fn from_iso8601(args: &Args<'_>) -> Result<Datum, EvalError> {
    let default_zone = args.optional_string("default_timezone")?;
    let text = args.string(0)?;
    let time = iso8601::parse(text, default_zone.map(|zone| zone.as_ref())).map_err(|error| error.at(0))?;
    Ok(Datum::Time(time))
}

/// `to_iso8601`: the time as ISO 8601 text, in its zone.
pub fn to_iso8601(args: &Args<'_>) -> Result<Datum, EvalError> {
    iso8601::print(of(args, 0)?).map(Datum::from)
}

/// `epoch_time`: the time this many seconds after the start of 1970, in UTC.
pub fn epoch_time(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Time(Time::new(args.number(0)?, 0)))
}

/// `to_epoch_time`: the seconds from the start of 1970 to the time.
pub fn to_epoch_time(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Number(of(args, 0)?.epoch_seconds))
}

/// `now`: the start of the query, the same throughout it.
pub fn now(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::Time(args.env.now))
}

/// `time`: the time of a date, a time of day (midnight unless given) and a zone.
pub fn time(args: &Args<'_>) -> Result<Datum, EvalError> {
    let has_clock = match args.len() {
        4 => false,
        7 => true,
        count => {
            let message = format!("Got {count} arguments to TIME (expected 4 or 7).");
            return Err(EvalError::logic(message));
        }
    };
    let (year, month, day) = (args.narrow(0)?.into(), args.narrow(1)?.into(), args.narrow(2)?.into());
    let mut seconds = 0.0;
    if has_clock {
        let (hours, minutes) = (f64::from(args.narrow(3)?), f64::from(args.narrow(4)?));
        // One negative part makes the whole time of day negative. Source: `to_tick_count` in Boost.
        let sign = if hours < 0.0 || minutes < 0.0 { -1.0 } else { 1.0 };
        seconds = sign * (hours.abs() * 3_600.0 + minutes.abs() * 60.0) + args.number(5)?;
    }
    let last = args.len() - 1;
    let zone = args.string(last)?;
    // The date is checked before the zone. Source: `make_time` in pseudo_time.cc of RethinkDB 2.4.
    let date = Date::new(year, month, day)?;
    let zone = zone::parse(zone)?;
    zone::check(zone)?;
    let midnight = date.days() * 86_400 - i64::from(zone) * 60;
    Ok(Datum::Time(Time::new(midnight as f64 + seconds, zone)))
}

/// `in_timezone`: the same instant, shown in another zone.
pub fn in_timezone(args: &Args<'_>) -> Result<Datum, EvalError> {
    let time = of(args, 0)?;
    let zone = match args.plain_string(1)?.as_ref() {
        // RethinkDB cannot print a time in this zone.
        text @ "-0000" => return Err(zone::not_valid(text)),
        text => zone::parse(text)?,
    };
    Ok(Datum::Time(Time::new(time.epoch_seconds, zone)))
}

/// `during`: whether the time is between the second and the third argument.
pub fn during(args: &Args<'_>) -> Result<Datum, EvalError> {
    let (time, start, end) = (of(args, 0)?, of(args, 1)?, of(args, 2)?);
    let (time, start, end) = (time.epoch_seconds, start.epoch_seconds, end.epoch_seconds);
    // The option of a bound is read only if the time equals the bound. Source: `during_term_t` in terms/time.cc of
    // RethinkDB 2.4.
    let after_start = start < time || (start <= time && !is_open(args, "left_bound", false)?);
    let before_end = after_start && (time < end || (time <= end && !is_open(args, "right_bound", true)?));
    Ok(Datum::Bool(before_end))
}

fn is_open(args: &Args<'_>, bound: &'static str, default: bool) -> Result<bool, EvalError> {
    match args.optional_string(bound)?.map(|text| text.as_ref()) {
        None => Ok(default),
        Some("open") => Ok(true),
        Some("closed") => Ok(false),
        Some(other) => {
            let got = Datum::from(other).to_json_string();
            let message = format!("Expected `open` or `closed` for optarg `{bound}` (got `{got}`).");
            Err(EvalError::logic(message))
        }
    }
}

/// `timezone`: the zone of the time, as `±hh:mm`.
pub fn timezone(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(Datum::String(Text::from(of(args, 0)?.offset_text())))
}

/// Argument `i` as a time.
pub(super) fn of<'a>(args: &Args<'a>, i: usize) -> Result<&'a Time, EvalError> {
    if let Some(Arg::Datum(Datum::Time(time))) = args.get(i) {
        return Ok(time);
    }
    let shown = args.datum(i)?.truncated();
    Err(EvalError::logic(format!("Not a TIME pseudotype: `{shown}`.")).at(i))
}
