//! `coerce_to` and `ungroup`: conversions to datums.

use datum::{Array, Datum, ObjectBuilder, Text};
use reql::{Arg, EvalError, Op};

use super::sequence;
use crate::context::Cx;
use crate::value::{Args, Seq, Value};

/// `coerce_to`: a value that has the type stays as it is; a sequence becomes an array or an object, a row its datum.
pub(crate) fn coerce_to(mut args: Args<'_>) -> Result<Value, EvalError> {
    let cx = args.cx;
    let target = reql::op::coerce::target(&args.string(1)?)?;
    let value = args.take(0)?;
    if is_one(&value, target) {
        return Ok(value);
    }
    match value {
        Value::Datum(datum) => coerce(cx, datum, target),
        Value::Row(row) => match row.datum(cx)? {
            datum if datum.kind().name() == target => Ok(Value::Row(row)),
            datum => coerce(cx, datum, target),
        },
        _ if target == "BOOL" => Ok(Value::Datum(Datum::Bool(true))),
        lazy @ (Value::Table(_) | Value::Seq(_)) => match target {
            "ARRAY" | "DATUM" => sequence::to_array(cx, lazy).map(Value::Datum),
            "OBJECT" => {
                let items = sequence::to_array(cx, lazy)?;
                coerce(cx, items, target)
            }
            _ => Err(refused(&lazy, target)),
        },
        other => Err(refused(&other, target)),
    }
}

/// Whether a value has a type that is not a datum's, or may be used as one. Source: `raw_type_is_convertible` in val.cc
/// of RethinkDB, where a datum may be used as a sequence.
fn is_one(value: &Value, target: &str) -> bool {
    match target {
        "DB" => matches!(value, Value::Db(_)),
        "TABLE" => matches!(value, Value::Table(slice) if slice.is_whole()),
        "TABLE_SLICE" => matches!(value, Value::Table(_)),
        "SELECTION<STREAM>" => matches!(value, Value::Table(_) | Value::Seq(Seq { table: Some(_), .. })),
        "STREAM" => matches!(value, Value::Table(_) | Value::Seq(_) | Value::Datum(_)),
        "SELECTION<OBJECT>" => matches!(value, Value::Row(_)),
        "DATUM" => matches!(value, Value::Datum(_) | Value::Row(_)),
        "FUNCTION" => matches!(value, Value::Func(_)),
        "GROUPED_DATA" => matches!(value, Value::Grouped(_)),
        _ => false,
    }
}

fn coerce(cx: &Cx, datum: Datum, target: &'static str) -> Result<Value, EvalError> {
    let values = [Arg::Datum(datum), Arg::Datum(target.into())];
    reql::apply(Op::CoerceTo, &values, &[], &cx.env()).map(Value::Datum)
}

fn refused(value: &Value, target: &str) -> EvalError {
    let kind = match value {
        Value::Seq(Seq { table: Some(_), .. }) => "SELECTION<STREAM>",
        other => other.type_of(),
    };
    EvalError::logic(format!("Cannot coerce {kind} to {target}.")).at(0)
}

/// `ungroup`: an array of `{group, reduction}` in the order of the keys.
pub(crate) fn ungroup(mut args: Args<'_>) -> Result<Value, EvalError> {
    let grouped = match args.take(0)? {
        Value::Grouped(grouped) => grouped.into_ready(args.cx)?,
        other => return Err(other.not_a(args.cx, "GROUPED_DATA").at(0)),
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
