//! The leaf terms: functions from evaluated arguments to a datum, one file per family.
//!
//! A leaf receives arguments that are already evaluated and counted. Terms that control the evaluation of their
//! arguments (`branch`, `default`, `do`, …) are in `eval`. Terms over sequences are in `sequence`, `transform` and
//! `terminal`, which use a leaf from here if the first argument is not a sequence (`count` of a string, `pluck` of
//! one object, …).

mod arithmetic;
mod array;
mod bits;
mod calendar;
pub mod coerce;
mod comparison;
mod digits;
pub mod field;
mod format;
pub mod geo;
mod inspect;
pub mod iso8601;
pub mod json;
pub mod merge;
mod object;
pub mod pathspec;
pub mod project;
mod random;
mod re2;
mod regexp;
mod set;
mod split;
pub mod string;
mod strtod;
mod time;
mod time_parts;
pub mod uuid;
mod zone;

use datum::Datum;

pub use comparison::{decided, is_comparison};
pub use object::checked_object;

use crate::args::Args;
use crate::error::EvalError;
use crate::signature::Op;

/// A leaf term.
pub type Leaf = fn(&Args<'_>) -> Result<Datum, EvalError>;

/// The function of `op`, if it is a leaf term.
#[must_use]
pub fn leaf(op: Op) -> Option<Leaf> {
    number_leaf(op)
        .or_else(|| string_leaf(op))
        .or_else(|| object_leaf(op))
        .or_else(|| array_leaf(op))
        .or_else(|| time_leaf(op))
        .or_else(|| geo::leaf(op))
        .or_else(|| constant_leaf(op))
}

fn number_leaf(op: Op) -> Option<Leaf> {
    Some(match op {
        Op::Add => arithmetic::add,
        Op::Sub => arithmetic::sub,
        Op::Mul => arithmetic::mul,
        Op::Div => arithmetic::div,
        Op::Mod => arithmetic::modulo,
        Op::Floor => arithmetic::floor,
        Op::Ceil => arithmetic::ceil,
        Op::Round => arithmetic::round,
        Op::BitAnd => bits::bit_and,
        Op::BitOr => bits::bit_or,
        Op::BitXor => bits::bit_xor,
        Op::BitNot => bits::bit_not,
        Op::BitSal => bits::bit_sal,
        Op::BitSar => bits::bit_sar,
        Op::Random => random::random,
        Op::Eq => comparison::eq,
        Op::Ne => comparison::ne,
        Op::Lt => comparison::lt,
        Op::Le => comparison::le,
        Op::Gt => comparison::gt,
        Op::Ge => comparison::ge,
        Op::Not => comparison::not,
        _ => return None,
    })
}

fn string_leaf(op: Op) -> Option<Leaf> {
    Some(match op {
        Op::Match => regexp::matches,
        Op::Split => string::split,
        Op::Upcase => string::upcase,
        Op::Downcase => string::downcase,
        Op::Format => format::format,
        Op::Json => json::json,
        Op::ToJsonString => json::to_json_string,
        Op::CoerceTo => coerce::coerce_to,
        Op::Binary => coerce::binary,
        Op::Uuid => uuid::uuid,
        Op::TypeOf => inspect::type_of,
        Op::Info => inspect::info,
        _ => return None,
    })
}

fn object_leaf(op: Op) -> Option<Leaf> {
    Some(match op {
        Op::Object => object::object,
        Op::Keys => object::keys,
        Op::Values => object::values,
        Op::GetField => field::get_field,
        Op::Bracket => field::bracket,
        Op::HasFields => project::has_fields,
        Op::Pluck => project::pluck,
        Op::Without => project::without,
        Op::WithFields => project::with_fields,
        Op::Merge => merge::merge,
        Op::Literal => merge::literal,
        _ => return None,
    })
}

fn array_leaf(op: Op) -> Option<Leaf> {
    Some(match op {
        Op::Append => array::append,
        Op::Prepend => array::prepend,
        Op::InsertAt => array::insert_at,
        Op::SpliceAt => array::splice_at,
        Op::DeleteAt => array::delete_at,
        Op::ChangeAt => array::change_at,
        Op::SetInsert => set::set_insert,
        Op::SetUnion => set::set_union,
        Op::SetIntersection => set::set_intersection,
        Op::SetDifference => set::set_difference,
        _ => return None,
    })
}

fn time_leaf(op: Op) -> Option<Leaf> {
    Some(match op {
        Op::Iso8601 => time::from_iso8601,
        Op::ToIso8601 => time::to_iso8601,
        Op::EpochTime => time::epoch_time,
        Op::ToEpochTime => time::to_epoch_time,
        Op::Now => time::now,
        Op::Time => time::time,
        Op::InTimezone => time::in_timezone,
        Op::During => time::during,
        Op::Timezone => time::timezone,
        Op::Date => time_parts::date,
        Op::TimeOfDay => time_parts::time_of_day,
        Op::Year => time_parts::year,
        Op::Month => time_parts::month,
        Op::Day => time_parts::day,
        Op::DayOfWeek => time_parts::day_of_week,
        Op::DayOfYear => time_parts::day_of_year,
        Op::Hours => time_parts::hours,
        Op::Minutes => time_parts::minutes,
        Op::Seconds => time_parts::seconds,
        _ => return None,
    })
}

fn constant_leaf(op: Op) -> Option<Leaf> {
    Some(match op {
        Op::MinVal => |_| Ok(Datum::MinVal),
        Op::MaxVal => |_| Ok(Datum::MaxVal),
        Op::Monday | Op::January => |_| Ok(Datum::Number(1.0)),
        Op::Tuesday | Op::February => |_| Ok(Datum::Number(2.0)),
        Op::Wednesday | Op::March => |_| Ok(Datum::Number(3.0)),
        Op::Thursday | Op::April => |_| Ok(Datum::Number(4.0)),
        Op::Friday | Op::May => |_| Ok(Datum::Number(5.0)),
        Op::Saturday | Op::June => |_| Ok(Datum::Number(6.0)),
        Op::Sunday | Op::July => |_| Ok(Datum::Number(7.0)),
        Op::August => |_| Ok(Datum::Number(8.0)),
        Op::September => |_| Ok(Datum::Number(9.0)),
        Op::October => |_| Ok(Datum::Number(10.0)),
        Op::November => |_| Ok(Datum::Number(11.0)),
        Op::December => |_| Ok(Datum::Number(12.0)),
        _ => return None,
    })
}
