//! `object`, `keys`, `values`.

use datum::{Datum, Object, ObjectBuilder, pseudo};

use super::merge::{stray_literal, typed};
use crate::EvalError;
use crate::args::Args;

/// `object`: an object from alternating keys and values.
pub fn object(args: &Args<'_>) -> Result<Datum, EvalError> {
    if !args.len().is_multiple_of(2) {
        let count = args.len();
        return Err(EvalError::logic(format!(
            "OBJECT expects an even number of arguments (but found {count})."
        )));
    }
    let mut members = ObjectBuilder::new();
    for i in (0..args.len()).step_by(2) {
        let key = args.string(i)?;
        let value = args.datum(i + 1)?;
        if let Some(before) = members.insert(key.clone(), value.clone()) {
            return Err(EvalError::logic(format!(
                "Duplicate key {} in object.  (got {} and {} as values)",
                Datum::String(key.clone()).to_json_string(),
                before.truncated(),
                value.truncated(),
            )));
        }
    }
    checked_object(members)
}

/// The value of members collected while the query runs: an object, or the pseudotype that its `$reql_type$` names.
/// A literal is an error, even inside a merge; only the `literal` term and JSON make one.
pub fn checked_object(members: ObjectBuilder) -> Result<Datum, EvalError> {
    let object = members.build();
    if !object.contains_key(pseudo::KEY) {
        return Ok(Datum::Object(object));
    }
    if pseudo::is_literal(&object) {
        return Err(stray_literal());
    }
    typed(object)
}

/// `keys`: the names of an object's fields, in order.
pub fn keys(args: &Args<'_>) -> Result<Datum, EvalError> {
    let object = plain_object(args, "keys")?;
    args.env.check_array(object.len())?;
    Ok(Datum::Array(object.keys().map(Datum::String).collect()))
}

/// `values`: the values of an object's fields, in the order of their names.
pub fn values(args: &Args<'_>) -> Result<Datum, EvalError> {
    let object = plain_object(args, "values")?;
    args.env.check_array(object.len())?;
    Ok(Datum::Array(object.iter().map(|(_, value)| value).collect()))
}

fn plain_object<'a>(args: &Args<'a>, term: &str) -> Result<&'a Object, EvalError> {
    match args.datum(0)? {
        Datum::Object(object) => Ok(object),
        other => {
            let kind = other.kind().name();
            let message = format!("Cannot call `{term}` on objects of type `{kind}`.");
            // Also for null. Source: terms/obj.cc of RethinkDB 2.4.
            Err(EvalError::logic(message).at(0))
        }
    }
}
