//! Names of terms, options and variables in source, and which terms are written how.
//!
//! Source: RethinkDB 2.4, src/pprint/js_pprint.cc.

use crate::signature::Op;
use crate::term::VarId;

/// How a term is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `[a, b]` or `{"a": b}`, a value.
    Value,
    /// `a.name(b)`
    Method,
    /// `r.name(a, b)`
    Function,
    /// `r.name`
    Constant,
}

/// How a term with `args` arguments is written.
pub(super) fn form(op: Op, args: usize) -> Form {
    match op {
        Op::MakeArray | Op::MakeObj => Form::Value,
        Op::Table | Op::Funcall if args == 2 => Form::Method,
        Op::Table | Op::Funcall => Form::Function,
        _ if is_constant(op) && args == 0 => Form::Constant,
        _ if is_constant(op) || is_function(op) => Form::Function,
        _ => Form::Method,
    }
}

fn is_constant(op: Op) -> bool {
    matches!(
        op,
        Op::MinVal
            | Op::MaxVal
            | Op::Monday
            | Op::Tuesday
            | Op::Wednesday
            | Op::Thursday
            | Op::Friday
            | Op::Saturday
            | Op::Sunday
            | Op::January
            | Op::February
            | Op::March
            | Op::April
            | Op::May
            | Op::June
            | Op::July
            | Op::August
            | Op::September
            | Op::October
            | Op::November
            | Op::December
    )
}

fn is_function(op: Op) -> bool {
    matches!(
        op,
        Op::Eq
            | Op::Ne
            | Op::Lt
            | Op::Le
            | Op::Gt
            | Op::Ge
            | Op::Not
            | Op::And
            | Op::Or
            | Op::Add
            | Op::Sub
            | Op::Mul
            | Op::Div
            | Op::Mod
            | Op::BitAnd
            | Op::BitOr
            | Op::BitXor
            | Op::BitNot
            | Op::BitSal
            | Op::BitSar
            | Op::Branch
            | Op::Error
            | Op::Args
            | Op::Object
            | Op::Literal
            | Op::Json
            | Op::Range
            | Op::Random
            | Op::Uuid
            | Op::Http
            | Op::Javascript
            | Op::Asc
            | Op::Desc
            | Op::Db
            | Op::DbCreate
            | Op::DbDrop
            | Op::DbList
            | Op::Iso8601
            | Op::EpochTime
            | Op::Now
            | Op::Time
            | Op::Geojson
            | Op::Point
            | Op::Line
            | Op::Polygon
            | Op::Circle
    )
}

/// `getField` of GET_FIELD.
pub(super) fn of_term(op: Op) -> String {
    match op {
        Op::Javascript => "js".to_owned(),
        _ => camel_case(op.name()),
    }
}

/// `leftBound` of `left_bound`.
pub(super) fn camel_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut letters = name.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '_' => out.push(letters.next().map_or('_', |next| next.to_ascii_uppercase())),
            _ => out.push(letter.to_ascii_lowercase()),
        }
    }
    out
}

/// `var1`; variables that no client names are negative: `_var1`.
pub(super) fn of_variable(id: VarId) -> String {
    let sign = if id.0 < 0 { "_" } else { "" };
    format!("{sign}var{}", id.0.unsigned_abs())
}
