//! Names of terms, options and variables in source code, and the syntax of each term.
//!
//! Source: RethinkDB 2.4, src/pprint/js_pprint.cc.

use crate::signature::Op;
use crate::term::VarId;

/// The syntax of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An array `[a, b]` or object `{"a": b}`.
    Value,
    /// `a.name(b)`
    Method,
    /// `r.name(a, b)`
    Function,
    /// `r.name`
    Constant,
}

/// The syntax of a term with `args` arguments.
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
        Op::ImplicitVar
            | Op::MinVal
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

/// The method name of a term, such as `getField` for GET_FIELD.
pub(super) fn of_term(op: Op) -> String {
    match op {
        Op::Javascript => "js".to_owned(),
        Op::ImplicitVar => "row".to_owned(),
        _ => camel_case(op.name()),
    }
}

/// Converts `left_bound` to `leftBound`.
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

/// `var1`; variables not named by a client have negative numbers: `_var1`.
pub(super) fn of_variable(id: VarId) -> String {
    let sign = if id.0 < 0 { "_" } else { "" };
    format!("{sign}var{}", id.0.unsigned_abs())
}
