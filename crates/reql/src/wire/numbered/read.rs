//! Converts numbered trees back to the wire form.

use datum::Datum;

use crate::deep;
use crate::wire::tape::{Node, Siblings, Tape, Value};

/// The text is not a numbered tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TreeError {
    #[error("it is not JSON")]
    NotJson,
    #[error("an element of it is not a term")]
    NotATerm,
    #[error("the backtrace of a term is not a number of 32 bits")]
    NoNumber,
}

/// The number of the term for an explicit datum.
const DATUM: f64 = 1.0;
/// The number of the term for an object.
const MAKE_OBJ: f64 = 3.0;

/// The wire form of a numbered tree.
pub(crate) fn wire_form(tree: &str) -> Result<String, TreeError> {
    let tape = Tape::parse(tree).map_err(|_| TreeError::NotJson)?;
    let mut out = Vec::with_capacity(tree.len());
    term(tape.root(), &mut out)?;
    String::from_utf8(out).map_err(|_| TreeError::NotJson)
}

fn term(value: Value<'_, '_>, out: &mut Vec<u8>) -> Result<(), TreeError> {
    let mut items = value.items().ok_or(TreeError::NotATerm)?;
    let count = items.len();
    let Some(Node::Number(id, _)) = items.next().map(Value::node) else { return Err(TreeError::NotATerm) };
    if !(2..=4).contains(&count) {
        return Err(TreeError::NotATerm);
    }
    let mut parts = items.take(count - 2);
    match items.nth(count - 2).map(Value::node) {
        Some(Node::Number(n, _)) if n.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(n) => {}
        _ => return Err(TreeError::NoNumber),
    }
    if *id == DATUM {
        return match (parts.next(), parts.next()) {
            (Some(value), None) => {
                constant(value, out);
                Ok(())
            }
            _ => Err(TreeError::NotATerm),
        };
    }
    let only = parts.clone().next().filter(|_| count == 3);
    match only {
        // Constants are recognized by this form.
        None if *id == MAKE_OBJ && count == 2 => {
            out.extend_from_slice(b"{}");
            return Ok(());
        }
        Some(object) if *id == MAKE_OBJ && object.members().is_some() => return members(object, out),
        _ => {}
    }
    out.extend_from_slice(b"[");
    Datum::Number(*id).write_json(out);
    for part in parts {
        out.extend_from_slice(b",");
        match (part.items(), part.members()) {
            (Some(args), _) => list(args, out)?,
            (None, Some(_)) => members(part, out)?,
            (None, None) => return Err(TreeError::NotATerm),
        }
    }
    out.extend_from_slice(b"]");
    Ok(())
}

fn list(args: Siblings<'_, '_>, out: &mut Vec<u8>) -> Result<(), TreeError> {
    out.extend_from_slice(b"[");
    for (i, arg) in args.enumerate() {
        if i > 0 {
            out.extend_from_slice(b",");
        }
        deep::level(|| term(arg, out))?;
    }
    out.extend_from_slice(b"]");
    Ok(())
}

fn members(object: Value<'_, '_>, out: &mut Vec<u8>) -> Result<(), TreeError> {
    out.extend_from_slice(b"{");
    for (i, (name, value)) in object.members().into_iter().flatten().enumerate() {
        if i > 0 {
            out.extend_from_slice(b",");
        }
        Datum::from(&**name).write_json(out);
        out.extend_from_slice(b":");
        deep::level(|| term(value, out))?;
    }
    out.extend_from_slice(b"}");
    Ok(())
}

/// Writes the value of an explicit datum as terms that make it: arrays need MAKE_ARRAY.
fn constant(value: Value<'_, '_>, out: &mut Vec<u8>) {
    match value.node() {
        Node::Null => out.extend_from_slice(b"null"),
        Node::Bool(flag) => Datum::Bool(*flag).write_json(out),
        Node::Number(number, _) => Datum::Number(*number).write_json(out),
        Node::String(text) => Datum::from(&**text).write_json(out),
        Node::Array(_) => {
            out.extend_from_slice(b"[2,[");
            for (i, item) in value.items().into_iter().flatten().enumerate() {
                if i > 0 {
                    out.extend_from_slice(b",");
                }
                deep::level(|| constant(item, out));
            }
            out.extend_from_slice(b"]]");
        }
        Node::Object(_) => {
            out.extend_from_slice(b"{");
            for (i, (name, value)) in value.members().into_iter().flatten().enumerate() {
                if i > 0 {
                    out.extend_from_slice(b",");
                }
                Datum::from(&**name).write_json(out);
                out.extend_from_slice(b":");
                deep::level(|| constant(value, out));
            }
            out.extend_from_slice(b"}");
        }
    }
}
