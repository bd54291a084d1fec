//! Times: moments with a zone, their parts, and ISO 8601.

use super::{datum, number};
use crate::evaluator::args::Args;
use crate::evaluator::term_value::TermValue;
use crate::fault::{Fault, Out};
use crate::value::{Val, zone_of, zone_text};

const DAY: f64 = 86_400.0;

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    match args.id {
        99 => iso8601(args),
        100 => {
            let (seconds, zone) = time(args, 0)?;
            datum(Val::Text(to_iso8601(seconds, zone)?))
        }
        101 => {
            let seconds = args.number(0)?;
            moved(0.0, 0, seconds).and_then(datum)
        }
        102 => number(time(args, 0)?.0),
        103 => Err(Fault::unspecified("the present")),
        104 => {
            let (seconds, _) = time(args, 0)?;
            let zone = zone_of(&args.text(1)?).ok_or_else(|| Fault::logic("no zone"))?;
            datum(Val::Time(seconds, zone))
        }
        105 => during(args),
        107..=113 => number((args.id - 106) as f64),
        114..=125 => number((args.id - 113) as f64),
        136 => build(args),
        _ => part(args),
    }
}

fn time(args: &Args<'_>, i: usize) -> Out<(f64, i32)> {
    match args.datum(i)? {
        Val::Time(seconds, zone) => Ok((seconds, zone)),
        _ => Err(Fault::logic("not a time")),
    }
}

/// A moment some seconds later, to the millisecond.
pub(super) fn moved(seconds: f64, zone: i32, by: f64) -> Out<Val> {
    let moved = ((seconds + by) * 1000.0).round() / 1000.0;
    // Years 1400 to 9999; near the ends the reference has no verdict.
    match moved {
        m if m == 0.0 && (seconds.is_sign_negative() || by.is_sign_negative()) => {
            Err(Fault::unspecified("the sign of no seconds"))
        }
        m if !(-17_900_000_000.0..253_300_000_000.0).contains(&m) => Err(Fault::unspecified("a far time")),
        m => Ok(Val::Time(m, zone)),
    }
}

fn during(args: &Args<'_>) -> Out<TermValue> {
    let (at, _) = time(args, 0)?;
    let (left, right) = (time(args, 1)?.0, time(args, 2)?.0);
    let open = |name: &str, otherwise: bool| match args.option(name)? {
        None => Ok(otherwise),
        Some(Val::Text(side)) if side == "open" => Ok(true),
        Some(Val::Text(side)) if side == "closed" => Ok(false),
        Some(Val::Text(_)) => Err(Fault::logic("neither open nor closed")),
        Some(other) => Err(Fault::expected("STRING", &other)),
    };
    // A bound is evaluated only if it matters. Source: terms/time.cc of RethinkDB 2.4.
    let inside = (at > left || (at == left && !open("left_bound", false)?))
        && (at < right || (at == right && !open("right_bound", true)?));
    datum(Val::Bool(inside))
}

/// Days since 1970 of a date in the Gregorian calendar, by counting years and months.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let years = if year >= 1970 {
        (1970..year).map(days_in_year).sum()
    } else {
        -(year..1970).map(days_in_year).sum::<i64>()
    };
    years + (1..month).map(|month| days_in_month(year, month)).sum::<i64>() + day - 1
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_year(year: i64) -> i64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// A moment as the wall clock time of its zone.
struct Clock {
    year: i64,
    month: i64,
    day: i64,
    day_of_year: i64,
    /// 1 is Monday.
    weekday: i64,
    /// Since midnight.
    seconds: f64,
}

impl Clock {
    fn of(seconds: f64, zone: i32) -> Clock {
        let local = seconds + f64::from(zone) * 60.0;
        let days = (local / DAY).floor() as i64;
        let mut year = 1970;
        let mut left = days;
        while left < 0 {
            year -= 1;
            left += days_in_year(year);
        }
        while left >= days_in_year(year) {
            left -= days_in_year(year);
            year += 1;
        }
        let (day_of_year, mut month) = (left + 1, 1);
        while left >= days_in_month(year, month) {
            left -= days_in_month(year, month);
            month += 1;
        }
        // The first day of 1970 was a Thursday.
        let weekday = (days + 3).rem_euclid(7) + 1;
        let of_day = ((local - days as f64 * DAY) * 1000.0).round() / 1000.0;
        Clock { year, month, day: left + 1, day_of_year, weekday, seconds: of_day }
    }
}

fn part(args: &Args<'_>) -> Out<TermValue> {
    let (seconds, zone) = time(args, 0)?;
    let clock = Clock::of(seconds, zone);
    match args.id {
        106 => datum(Val::Time(((seconds - clock.seconds) * 1000.0).round() / 1000.0, zone)),
        126 => number(clock.seconds),
        127 => datum(Val::Text(zone_text(zone))),
        128 => number(clock.year as f64),
        129 => number(clock.month as f64),
        130 => number(clock.day as f64),
        131 => number(clock.weekday as f64),
        132 => number(clock.day_of_year as f64),
        133 => number((clock.seconds / 3600.0).floor()),
        134 => number((clock.seconds % 3600.0 / 60.0).floor()),
        _ => number((clock.seconds % 60.0 * 1000.0).round() / 1000.0),
    }
}

fn to_iso8601(seconds: f64, zone: i32) -> Out<String> {
    let clock = Clock::of(seconds, zone);
    let whole = clock.seconds.floor() as i64;
    let thousandths = ((clock.seconds - whole as f64) * 1000.0).round() as i64;
    let fraction = if thousandths > 0 { format!(".{thousandths:03}") } else { String::new() };
    Ok(format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}{}",
        clock.year,
        clock.month,
        clock.day,
        whole / 3600,
        whole % 3600 / 60,
        whole % 60,
        zone_text(zone)
    ))
}

fn moment(date: (i64, i64, i64), of_day: f64, zone: i32) -> Out<TermValue> {
    let (year, month, day) = date;
    if !(1400..10_000).contains(&year)
        || !(1..=12).contains(&month)
        || day < 1
        || day > days_in_month(year, month)
    {
        return Err(Fault::logic("no such day"));
    }
    let local = days_of(year, month, day) as f64 * DAY + of_day;
    moved(local - f64::from(zone) * 60.0, zone, 0.0).and_then(datum)
}

/// `time`: year, month, day, perhaps hours, minutes, seconds, and a zone.
fn build(args: &Args<'_>) -> Out<TermValue> {
    let (year, month, day) = (args.whole(0)?, args.whole(1)?, args.whole(2)?);
    let last = args.len() - 1;
    let of_day = match args.len() {
        4 => 0.0,
        7 => {
            let (hours, minutes, seconds) = (args.whole(3)?, args.whole(4)?, args.number(5)?);
            if !(0..24).contains(&hours) || !(0..60).contains(&minutes) || !(0.0..60.0).contains(&seconds) {
                return Err(Fault::unspecified("an hour that no day has"));
            }
            hours as f64 * 3600.0 + minutes as f64 * 60.0 + seconds
        }
        _ => return Err(Fault::logic("4 or 7 arguments")),
    };
    let zone = zone_of(&args.text(last)?).ok_or_else(|| Fault::logic("no zone"))?;
    moment((year, month, day), of_day, zone)
}

/// `iso8601`: a date of a calendar or a year, perhaps a time, perhaps a zone.
fn iso8601(args: &Args<'_>) -> Out<TermValue> {
    let text = args.text(0)?;
    let otherwise = args.option("default_timezone")?.map(crate::evaluator::args::text).transpose()?;
    let found = |pattern: &str, text: &str| -> Out<Option<Vec<Option<String>>>> {
        let pattern = super::strings::regex_of(pattern)?;
        let parts = pattern.captures(text);
        Ok(parts.map(|parts| parts.iter().map(|part| part.map(|part| part.as_str().to_owned())).collect()))
    };
    let number = |part: &Option<String>| part.as_ref().map(|part| part.parse::<f64>().unwrap_or(0.0));
    let (date, rest) = text.split_once('T').map_or((text.as_str(), None), |(date, rest)| (date, Some(rest)));
    let of_calendar = r"^(\d{4})(?:-(\d\d)(?:-(\d\d))?)?$|^(\d{4})(\d\d)(\d\d)$";
    let of_year = r"^(\d{4})-?(\d{3})$";
    let day = match (found(of_calendar, date)?, found(of_year, date)?) {
        (Some(parts), _) => {
            let part = |i: usize| number(&parts[i]).or_else(|| number(&parts[i + 3]));
            (part(1).unwrap_or(0.0), part(2).unwrap_or(1.0), part(3).unwrap_or(1.0))
        }
        (None, Some(parts)) => {
            let (mut year, mut left) =
                (number(&parts[1]).unwrap_or(0.0), number(&parts[2]).unwrap_or(0.0) as i64);
            if !(1..=366).contains(&left) {
                return Err(Fault::logic("no such day"));
            }
            if left > days_in_year(year as i64) {
                (year, left) = (year + 1.0, 1);
            }
            let mut month = 1;
            while left > days_in_month(year as i64, month) {
                left -= days_in_month(year as i64, month);
                month += 1;
            }
            (year, month as f64, left as f64)
        }
        _ => return Err(Fault::logic("no date")),
    };
    let of_day =
        r"^(\d\d)(?::(\d\d)(?::(\d\d(?:\.\d+)?))?)?([Z+-].*)?$|^(\d\d)(\d\d)(\d\d(?:\.\d+)?)?([Z+-].*)?$";
    let (seconds, zone) = match rest {
        None => (0.0, None),
        Some(rest) => {
            let Some(parts) = found(of_day, rest)? else { return Err(Fault::logic("no time")) };
            let part = |i: usize| number(&parts[i]).or_else(|| number(&parts[i + 4])).unwrap_or(0.0);
            if part(1) > 23.0 || part(2) > 59.0 || part(3) >= 60.0 {
                return Err(Fault::unspecified("an hour that no day has"));
            }
            (part(1) * 3600.0 + part(2) * 60.0 + part(3), parts[4].clone().or_else(|| parts[8].clone()))
        }
    };
    let zone = zone.or(otherwise).ok_or_else(|| Fault::logic("no zone"))?;
    let zone = zone_of(&zone).ok_or_else(|| Fault::logic("no zone"))?;
    moment((day.0 as i64, day.1 as i64, day.2 as i64), seconds, zone)
}
