//! `coerce_to` and `ungroup`: values that are not datums become datums.

use datum::{Array, Datum, ObjectBuilder, Text};
use reql::{Arg, EvalError, Op};

use crate::args::Args;
use crate::context::Cx;
use crate::term::sequence;
use crate::value::Value;

/// `coerce_to`: a sequence becomes an array or an object, a row its datum.
pub(crate) fn coerce_to(mut args: Args<'_>) -> Result<Value, EvalError> {
    let cx = args.cx;
    let target = reql::op::coerce::target(&args.string(1)?)?;
    match args.take(0)? {
        value if value.type_of() == target => Ok(value),
        Value::Datum(datum) => coerce(cx, datum, target),
        Value::Row(row) => coerce(cx, row.into_datum(cx)?, target),
        lazy @ (Value::Table(_) | Value::Seq(_)) => match target {
            "ARRAY" | "DATUM" => sequence::to_array(cx, lazy).map(Value::Datum),
            "OBJECT" => {
                let items = sequence::to_array(cx, lazy)?;
                coerce(cx, items, target)
            }
            "BOOL" => Ok(Value::Datum(Datum::Bool(true))),
            "STREAM" | "SELECTION<STREAM>" | "TABLE_SLICE" => lazy.into_seq(cx).map(Value::Seq),
            _ => Err(refused(&lazy, target)),
        },
        other => Err(refused(&other, target)),
    }
}

fn coerce(cx: &Cx, datum: Datum, target: &'static str) -> Result<Value, EvalError> {
    let values = [Arg::Datum(datum), Arg::Datum(target.into())];
    reql::apply(Op::CoerceTo, &values, &[], &cx.env()).map(Value::Datum)
}

fn refused(value: &Value, target: &str) -> EvalError {
    EvalError::logic(format!("Cannot coerce {} to {target}.", value.type_of())).at(0)
}

/// `ungroup`: an array of `{group, reduction}` in the order of the keys.
pub(crate) fn ungroup(mut args: Args<'_>) -> Result<Value, EvalError> {
    let grouped = match args.take(0)? {
        Value::Grouped(grouped) => grouped.into_ready(args.cx)?,
        other => return Err(other.mismatch("GROUPED_DATA").at(0)),
    };
    let pair = |(key, value): (Datum, Datum)| {
        let mut out = ObjectBuilder::new();
        out.insert(Text::from_static("group"), key);
        out.insert(Text::from_static("reduction"), value);
        Datum::Object(out.build())
    };
    let pairs: Array = grouped.groups.into_iter().map(pair).collect();
    Ok(Value::Datum(Datum::Array(pairs)))
}
