//! `type_of` and `info` of datums.

use datum::{Datum, ObjectBuilder, Text};

use crate::EvalError;
use crate::args::Args;

/// `type_of`: the name of the value's type.
pub fn type_of(args: &Args<'_>) -> Result<Datum, EvalError> {
    Ok(name(args.datum(0)?))
}

/// `info`: the type of the value, and the value as text.
pub fn info(args: &Args<'_>) -> Result<Datum, EvalError> {
    let value = args.datum(0)?;
    let mut info = ObjectBuilder::new();
    info.insert(Text::from_static("type"), name(value));
    if !matches!(value, Datum::Null | Datum::MinVal | Datum::MaxVal) {
        info.insert(Text::from_static("value"), Datum::from(value.pretty()));
    }
    if let Datum::Binary(bytes) = value {
        info.insert(Text::from_static("count"), Datum::Number(bytes.len() as f64));
    }
    Ok(Datum::Object(info.build()))
}

fn name(value: &Datum) -> Datum {
    Datum::String(Text::from_static(value.kind().name()))
}
