//! `for_each`: writes for every item of a sequence, and sums the results.

use datum::{Datum, Object};
use reql::{Call, Closure, EvalError, Scope};

use crate::context::Cx;
use crate::value::Value;
use crate::write::{has_changed, merge_results};

const EXPECTED: &str = "FOR_EACH expects one or more basic write queries.";

/// `for_each`: calls a function with every item; it returns the result of a write, or an array of them.
pub(super) fn for_each(cx: &Cx, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
    let [sequence, func] = call.args.as_slice() else {
        return Err(EvalError::internal("FOR_EACH without arguments"));
    };
    let sequence = match cx.eval(sequence, scope).map_err(|error| error.at(0))? {
        // Groups are split before anything is written.
        Value::Grouped(groups) => return cx.call_per_group(call, scope, groups),
        sequence => sequence,
    };
    let seq = sequence.seq_of_argument(0, cx)?;
    let func = cx.eval(func, scope).map_err(|error| error.at(1))?;
    let writes = Writes::of(cx, func).map_err(|error| error.at(1))?;
    let env = cx.env();
    env.check_batches()?;
    let mut items = seq.pipe.open(cx)?;
    if let Some(endless) = items.endless() {
        return Err(endless.error());
    }
    let mut sum = Object::default();
    let mut write_next = |sum: &Object| {
        let Some(item) = items.next(&env).map_err(|error| error.at(0))? else { return Ok(None) };
        cx.check_cancel()?;
        let answer = match &writes {
            Writes::Each(closure) => cx.call_value(closure, &[item]).map_err(|error| error.at(1))?,
            Writes::Once(answer) => Value::Datum(answer.clone()),
        };
        add(cx, sum.clone(), answer).map(Some).map_err(|error| writes.blamed(error))
    };
    loop {
        match write_next(&sum) {
            Ok(Some(more)) => sum = more,
            Ok(None) => return Ok(Value::Datum(Datum::Object(sum))),
            // Earlier writes are not undone.
            Err(error) if has_changed(&sum) => return Err(error.indeterminate()),
            Err(error) => return Err(error),
        }
    }
}

enum Writes {
    /// A function that writes, called for each item.
    Each(Closure),
    /// The result of one write, which counts for each item.
    Once(Datum),
}

impl Writes {
    fn of(cx: &Cx, value: Value) -> Result<Writes, EvalError> {
        match value {
            Value::Func(closure) => Ok(Writes::Each(closure)),
            answer @ (Value::Datum(_) | Value::Row(_)) => answer.into_datum(cx).map(Writes::Once),
            other => Err(other.mismatch("FUNCTION")),
        }
    }

    /// Adds the place of an error in a result: the body of the function that returned it.
    fn blamed(&self, error: EvalError) -> EvalError {
        match self {
            Writes::Each(_) => error.at(1).at(1),
            Writes::Once(_) => error.at(1),
        }
    }
}

fn add(cx: &Cx, sum: Object, answer: Value) -> Result<Object, EvalError> {
    let Ok(answer) = answer.into_datum(cx) else {
        return Err(EvalError::logic(EXPECTED));
    };
    let prefixed = |error: EvalError| error.prefixed(&format!("{EXPECTED}  "));
    match answer {
        Datum::Object(result) => merge_results(sum, &result, cx.array_limit).map_err(prefixed),
        Datum::Array(results) => results.iter().try_fold(sum, |sum, result| match result {
            Datum::Object(result) => merge_results(sum, result, cx.array_limit).map_err(prefixed),
            other => Err(prefixed(EvalError::type_error("OBJECT", other))),
        }),
        other => Err(prefixed(EvalError::type_error("ARRAY", &other))),
    }
}
