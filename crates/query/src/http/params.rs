//! URL parameters and form fields, which have the same encoding.

use datum::{Datum, Object};
use reql::EvalError;

/// URL parameters; fails if they are no object of simple values.
pub(crate) fn url_params(params: Datum) -> Result<Object, EvalError> {
    let Datum::Object(fields) = params else {
        let (kind, shown) = (params.kind().name(), params.pretty());
        let why = format!("Expected `params` to be an OBJECT, but found {kind}:\n{shown}");
        return Err(EvalError::logic(why));
    };
    check_params(&fields, "params")?;
    Ok(fields)
}

/// Fails unless every field can be a parameter; `what` names the object.
pub(crate) fn check_params(fields: &Object, what: &str) -> Result<(), EvalError> {
    for (name, value) in fields.iter() {
        if !matches!(value, Datum::Number(_) | Datum::String(_) | Datum::Null) {
            let kind = value.kind().name();
            let shown = if what == "params" { format!(":\n{}", value.pretty()) } else { ".".to_owned() };
            return Err(EvalError::logic(format!(
                "Expected `{what}.{name}` to be a NUMBER, STRING or NULL, but found {kind}{shown}"
            )));
        }
    }
    Ok(())
}

/// Fields as `key=value&…`.
pub(crate) fn encoded(fields: &Object) -> String {
    let mut out = String::new();
    for (name, value) in fields.iter() {
        if !out.is_empty() {
            out.push('&');
        }
        escape(&name, &mut out);
        out.push('=');
        match value {
            Datum::Number(number) => escape(&datum::format_number(number), &mut out),
            Datum::String(text) => escape(&text, &mut out),
            _ => {}
        }
    }
    out
}

/// Escapes all but unreserved characters as `%XX` (RFC 3986, 2.3).
fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => {
                const DIGITS: [char; 16] =
                    ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
                out.push('%');
                out.push(DIGITS[usize::from(byte >> 4)]);
                out.push(DIGITS[usize::from(byte & 15)]);
            }
        }
    }
}
