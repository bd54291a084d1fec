//! `coerce_to`, and values as text.

use std::collections::BTreeMap;

use super::{datum, sequence};
use crate::evaluator::args::Args;
use crate::evaluator::term_value::{Seq, TermValue};
use crate::evaluator::{Evaluator, into_datum};
use crate::fault::{Fault, Out};
use crate::value::Val;

const TYPES: [&str; 19] = [
    "DB",
    "TABLE",
    "TABLE_SLICE",
    "SELECTION<STREAM>",
    "SELECTION<ARRAY>",
    "STREAM",
    "SELECTION<OBJECT>",
    "DATUM",
    "FUNCTION",
    "GROUPED_DATA",
    "NULL",
    "BINARY",
    "BOOL",
    "NUMBER",
    "STRING",
    "ARRAY",
    "OBJECT",
    "MINVAL",
    "MAXVAL",
];

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    let first = args.value(0)?;
    let wanted = args.text(1)?.to_uppercase();
    if !TYPES.contains(&wanted.as_str()) {
        return Err(Fault::logic("unknown type"));
    }
    let source = match first {
        TermValue::Table(_) | TermValue::Seq(_) => return of_sequence(args, first, &wanted),
        TermValue::Func(_) | TermValue::Db | TermValue::Groups(_) => {
            return Err(Fault::unspecified("coercion of no datum"));
        }
        TermValue::Row(table, row) if wanted == "SELECTION<OBJECT>" => return Ok(TermValue::Row(table, row)),
        TermValue::Row(table, row @ Val::Object(_)) if wanted == "OBJECT" => {
            return Ok(TermValue::Row(table, row));
        }
        other => into_datum(other)?,
    };
    if !matches!(wanted.as_str(), "NULL" | "BINARY" | "BOOL" | "NUMBER" | "STRING" | "ARRAY" | "OBJECT") {
        return Err(Fault::unspecified("a target that is rare"));
    }
    of_datum(args.evaluator, source, &wanted).and_then(datum)
}

fn of_sequence(args: &Args<'_>, first: TermValue, wanted: &str) -> Out<TermValue> {
    match wanted {
        "ARRAY" | "OBJECT" => {
            let seq: Seq = sequence::of_value(args.evaluator, first)?;
            match wanted {
                "ARRAY" => datum(Val::Array(sequence::array(args.evaluator, seq)?)),
                _ => pairs(sequence::all(seq)?).and_then(datum),
            }
        }
        _ => Err(Fault::unspecified("coercion of a sequence")),
    }
}

fn of_datum(evaluator: &Evaluator, source: Val, wanted: &str) -> Out<Val> {
    match (source, wanted) {
        (source, "BOOL") => Ok(Val::Bool(source.truth())),
        (Val::Null, "NULL") => Ok(Val::Null),
        (source @ Val::Number(_), "NUMBER") => Ok(source),
        (Val::Binary(bytes), "STRING") => {
            String::from_utf8(bytes).map(Val::Text).map_err(|_| Fault::logic("not UTF-8"))
        }
        (Val::Text(text), "BINARY") => Ok(Val::Binary(text.into_bytes())),
        (source @ Val::Binary(_), "BINARY") => Ok(source),
        (source, "STRING") => to_text(&source).map(Val::Text),
        (Val::Text(text), "NUMBER") => to_number(&text),
        (source @ Val::Array(_), "ARRAY") => Ok(source),
        (source @ (Val::Object(_) | Val::Time(..) | Val::Shape(..)), "OBJECT") => Ok(source),
        // Times and shapes are objects here. Source: terms/type_manip.cc.
        (source @ (Val::Time(..) | Val::Shape(..)), "ARRAY") => {
            let members = source.to_json().as_object().cloned().unwrap_or_default();
            let pair = |(key, value)| Val::Array(vec![Val::Text(key), Val::of_json(&value)]);
            evaluator.array(members.into_iter().map(pair).collect())
        }
        (Val::Object(members), "ARRAY") => {
            let pair = |(key, value)| Val::Array(vec![Val::Text(key), value]);
            evaluator.array(members.into_iter().map(pair).collect())
        }
        (Val::Array(items), "OBJECT") => pairs(items),
        (source, _) => Err(Fault::expected("something else", &source)),
    }
}

fn to_number(text: &str) -> Out<Val> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'.'));
    match text.parse::<f64>() {
        Ok(n) if plain && n.is_finite() => Ok(Val::Number(n)),
        Err(_) if plain || text.bytes().all(|b| b.is_ascii_lowercase() && !matches!(b, b'i' | b'n')) => {
            Err(Fault::logic("not a number"))
        }
        _ => Err(Fault::unspecified("what strtod does")),
    }
}

fn pairs(items: Vec<Val>) -> Out<Val> {
    let mut out = BTreeMap::new();
    for item in items {
        let pair = match item {
            Val::Array(pair) => pair,
            other => return Err(Fault::expected("ARRAY", &other)),
        };
        let [key, value] = pair.as_slice() else { return Err(Fault::logic("not a pair")) };
        let key = crate::evaluator::args::text(key.clone())?;
        if out.insert(key, value.clone()).is_some() {
            return Err(Fault::logic("duplicate key"));
        }
    }
    Ok(Val::Object(out))
}

/// Text stays as it is; other values become JSON.
pub(super) fn to_text(value: &Val) -> Out<String> {
    match value {
        Val::Text(text) => Ok(text.clone()),
        Val::Binary(bytes) => String::from_utf8(bytes.clone()).map_err(|_| Fault::logic("not UTF-8")),
        other => json_text(other),
    }
}

/// Whether a shape in it has computed coordinates.
fn has_computed_shape(value: &Val) -> bool {
    fn computed(coordinates: &Val) -> bool {
        match coordinates {
            Val::Array(items) => items.iter().any(computed),
            Val::Number(n) => n.fract() != 0.0,
            _ => false,
        }
    }
    match value {
        Val::Shape(_, coordinates) => computed(coordinates),
        Val::Array(items) => items.iter().any(has_computed_shape),
        Val::Object(members) => members.values().any(has_computed_shape),
        _ => false,
    }
}

/// JSON with the numbers as RethinkDB writes them. The digits of a fraction depend on Grisu2, of which there is no second
/// implementation here.
fn with_its_digits(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut number = String::new();
    let (mut quoted, mut escaped) = (false, false);
    for c in json.chars() {
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        if !quoted
            && matches!(c, '0'..='9' | '+' | '-' | '.' | 'e')
            && (!number.is_empty() || !c.is_ascii_alphabetic())
        {
            number.push(c);
        } else {
            out.push_str(&its_digits(&std::mem::take(&mut number)));
            out.push(c);
        }
    }
    out + &its_digits(&number)
}

fn its_digits(number: &str) -> String {
    let is_whole = number.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit());
    let value = number.parse::<f64>().ok().filter(|_| !is_whole);
    value.map_or_else(|| number.to_owned(), datum::format_number)
}

/// Compact JSON.
pub(super) fn json_text(value: &Val) -> Out<String> {
    if value.has_bound() {
        return Err(Fault::logic("no JSON"));
    }
    if has_computed_shape(value) {
        return Err(Fault::unspecified("the digits of a computed shape"));
    }
    let text = with_its_digits(&value.to_json().to_string());
    // The text of a text is longer, so that a fold of them grows without end; no rule determines where a node stops.
    if text.len() > LONG { Err(Fault::unspecified("a very long text")) } else { Ok(text) }
}

/// Longer JSON is not compared.
const LONG: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_get_their_digits_and_texts_stay() {
        let json = r#"{"a\\":"1.50","b\"1.50":[1e+21,0.00001,-7,true,40007862.917250894]}"#;
        let same = r#"{"a\\":"1.50","b\"1.50":[1e21,0.00001,-7,true,40007862.917250897]}"#;
        assert_eq!(with_its_digits(json), same);
    }
}
