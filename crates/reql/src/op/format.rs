//! `format`: a template whose `{name}` fields are filled from an object.

use datum::{Datum, Text};

use super::coerce;
use crate::EvalError;
use crate::args::{Args, check_text};

/// `format`: the template with every `{name}` replaced by that member of the object, as a string.
pub fn format(args: &Args<'_>) -> Result<Datum, EvalError> {
    let template = args.string(0)?;
    args.datum(1)?;
    fill(template, args).map(Datum::from)
}

/// Reads only the members that the template uses.
fn fill(template: &Text, args: &Args<'_>) -> Result<String, EvalError> {
    let mut filled = String::with_capacity(template.len());
    let mut rest: &str = template;
    while let Some(at) = rest.find(['{', '}']) {
        filled.push_str(&rest[..at]);
        if rest.as_bytes()[at] == b'}' {
            return Err(EvalError::logic("No parameter tags to close"));
        }
        let (name, after) = field_name(&rest[at + 1..])?;
        let name = template.slice_ref(name);
        let members = args.plain_object(1)?;
        let value = members.get(&name).ok_or_else(|| EvalError::no_attribute(&name, members))?;
        let value = coerce::to_text(&value)?;
        check_text(filled.len() + value.len())?;
        filled.push_str(&value);
        rest = after;
    }
    check_text(filled.len() + rest.len())?;
    filled.push_str(rest);
    Ok(filled)
}

/// The name up to the closing brace, and the text after it.
fn field_name(rest: &str) -> Result<(&str, &str), EvalError> {
    let message = match rest.find(['{', '}', ',', '\\']) {
        Some(at) => match rest.as_bytes()[at] {
            b'}' => return Ok((&rest[..at], &rest[at + 1..])),
            b'{' => "Nested template parameters are not allowed",
            b',' => "Formatting separator `,` is not allowed in parameter name",
            _ => "Reserved escape character `\\` is not allowed in parameter name",
        },
        None => "Parameter tag must be closed",
    };
    Err(EvalError::logic(message))
}
