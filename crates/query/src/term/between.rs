//! `between`: the part of a table whose index values are in a range.

use datum::{Datum, Text};
use reql::{EvalError, Op};
use shard::{Bounds, Side};

use super::table::at_table;
use crate::value::{Args, Value};

/// `between`: a range of an index, by default with the left bound included and the right one excluded.
/// `between_deprecated` takes null for no bound.
pub(crate) fn between(mut args: Args<'_>) -> Result<Value, EvalError> {
    let mut slice = args.slice(0)?;
    let left_side = side(&args, "left_bound", Side::Closed)?;
    let right_side = side(&args, "right_bound", Side::Open)?;
    let (left, right) = (bound(&mut args, 1, Datum::MinVal)?, bound(&mut args, 2, Datum::MaxVal)?);
    let index = match args.optional_string("index")? {
        Some(index) => index,
        // The index by which the table is ordered, if it is.
        None => slice.index_name(),
    };
    if slice.bounds.as_ref().is_some_and(|bounds| !bounds.is_universe()) {
        let why = "Cannot perform multiple BETWEENs on the same table.";
        return Err(at_table(args.call, EvalError::logic(why)));
    }
    check_order(slice.index.as_ref(), &index).map_err(|error| at_table(args.call, error))?;
    slice.index = Some(index);
    slice.bounds = Some(Bounds { left, left_side, right, right_side });
    Ok(Value::Table(slice))
}

fn bound(args: &mut Args<'_>, i: usize, unbounded: Datum) -> Result<Datum, EvalError> {
    match (args.datum(i)?, args.op()) {
        (Datum::Null, Op::BetweenDeprecated) => Ok(unbounded),
        (Datum::Null, _) => Err(EvalError::logic(
            "Cannot use `null` in BETWEEN, use `r.minval` or `r.maxval` to denote unboundedness.",
        )
        .at(i)),
        (bound, _) => Ok(bound),
    }
}

/// The side in an optional argument: `"open"` or `"closed"`.
pub(crate) fn side(args: &Args<'_>, name: &'static str, default: Side) -> Result<Side, EvalError> {
    let Some(text) = args.optional_string(name)? else {
        return Ok(default);
    };
    match text.as_ref() {
        "open" => Ok(Side::Open),
        "closed" => Ok(Side::Closed),
        _ => {
            let shown = Datum::String(text).to_json_string();
            Err(EvalError::logic(format!("Expected `open` or `closed` for optarg `{name}` (got `{shown}`).")))
        }
    }
}

fn check_order(ordered: Option<&Text>, index: &Text) -> Result<(), EvalError> {
    match ordered {
        Some(ordered) if ordered != index => Err(EvalError::logic(format!(
            "Cannot call BETWEEN on index `{index}` after ordering on index `{ordered}`."
        ))),
        _ => Ok(()),
    }
}
