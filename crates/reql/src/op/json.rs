//! `json`, `to_json_string`: parse and print JSON.

use std::cell::OnceCell;

use datum::{Datum, JsonError, Kind, json};

use super::merge;
use crate::EvalError;
use crate::args::{Args, TEXT_BYTES_MAX, check_text, text_too_long};
use crate::deep;
use crate::env::Env;

/// Longest text that a message quotes completely, in bytes.
const QUOTED_BYTES_MAX: usize = 40;

/// `json`: parses JSON text.
pub fn json(args: &Args<'_>) -> Result<Datum, EvalError> {
    let text = args.string(0)?;
    if text.contains('\0') {
        return Err(EvalError::logic("Encountered unescaped null byte in JSON string."));
    }
    let stopped = OnceCell::new();
    let go_on = || match (args.env.check_cancel(), stopped.get()) {
        (Err(error), None) => stopped.set(error).is_err(),
        (_, stopped) => stopped.is_none(),
    };
    let parsed = json::parse_while(text, &go_on);
    if let Some(error) = stopped.into_inner() {
        return Err(error);
    }
    let value = parsed.map_err(|error| match error {
        JsonError::Syntax { .. } => {
            let quoted = quoted(text);
            EvalError::logic(format!("Failed to parse \"{quoted}\" as JSON: {error}"))
        }
        JsonError::BadPseudotype(why) => merge::wrong_pseudotype(why),
        other => EvalError::logic(other.to_string()),
    })?;
    // An array that exceeds the limit contains at least this many commas, which hardly any text does.
    if memchr::memchr_iter(b',', text.as_bytes()).count() >= args.env.array_limit {
        check_arrays(&value, args.env)?;
    }
    Ok(value)
}

/// Fails if an array in the value exceeds the array limit. Source: datum.cc of RethinkDB.
fn check_arrays(value: &Datum, env: &Env<'_>) -> Result<(), EvalError> {
    match value {
        Datum::Array(items) => {
            env.check_array(items.len())?;
            deep::level(|| items.iter().try_for_each(|item| check_arrays(item, env)))
        }
        Datum::Object(members) => {
            deep::level(|| members.iter().try_for_each(|(_, value)| check_arrays(&value, env)))
        }
        _ => Ok(()),
    }
}

/// `to_json_string`: the compact JSON text of a value.
pub fn to_json_string(args: &Args<'_>) -> Result<Datum, EvalError> {
    text_of(args.datum(0)?).map(Datum::from)
}

/// The compact JSON text of `value`. Fails if the value contains `minval` or `maxval`, which have no JSON, or the
/// text would be too long.
pub fn text_of(value: &Datum) -> Result<String, EvalError> {
    if !value.json_may_fit(TEXT_BYTES_MAX) {
        return Err(text_too_long());
    }
    match value.not_json() {
        None => {
            let text = value.to_json_string();
            check_text(text.len()).map(|()| text)
        }
        Some(Kind::MinVal) => Err(EvalError::logic("Cannot convert `r.minval` to JSON.")),
        Some(_) => Err(EvalError::logic("Cannot convert `r.maxval` to JSON.")),
    }
}

fn quoted(text: &str) -> String {
    if text.len() <= QUOTED_BYTES_MAX {
        return text.to_owned();
    }
    let mut end = QUOTED_BYTES_MAX - 3;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &text[..end])
}
