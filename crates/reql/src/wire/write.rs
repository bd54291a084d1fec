//! Writes terms in their wire form, for functions that are stored.

use datum::{Datum, pseudo};

use super::bounded_text::BoundedText;
use crate::deep;
use crate::signature;
use crate::term::Term;

/// The JSON text of `term`, which [`super::parse_term`] reads. `None` if it has more than `bytes_max` bytes;
/// writing stops soon after that.
#[must_use]
pub fn write_term(term: &Term, bytes_max: usize) -> Option<Vec<u8>> {
    let mut out = BoundedText::new(bytes_max);
    write(term, &mut out);
    out.finish()
}

fn write(term: &Term, out: &mut BoundedText) {
    if out.is_over() {
        return;
    }
    deep::level(|| match term {
        Term::Datum(datum) => write_datum(datum, out),
        Term::Var(id) => out.push(format!("[10,[{}]]", id.0).as_bytes()),
        Term::Func(func) => {
            out.push(b"[69,[[2,[");
            for (i, param) in func.params.iter().enumerate() {
                let separator = if i == 0 { "" } else { "," };
                out.push(format!("{separator}{}", param.0).as_bytes());
            }
            out.push(b"]],");
            write(&func.body, out);
            out.push(b"]]");
        }
        Term::Call(call) => {
            out.push(format!("[{},", signature::of(call.op).id).as_bytes());
            list(call.args.iter(), out, write);
            if !call.optargs.is_empty() {
                out.push(b",");
                members(call.optargs.iter().map(|(key, term)| (&**key, term)), out, write);
            }
            out.push(b"]");
        }
    });
}

/// Writes a value as terms that make it: arrays need MAKE_ARRAY.
fn write_datum(datum: &Datum, out: &mut BoundedText) {
    match datum {
        _ if out.is_over() => {}
        Datum::MinVal => out.push(b"[180,[]]"),
        Datum::MaxVal => out.push(b"[181,[]]"),
        Datum::Array(items) => deep::level(|| {
            out.push(b"[2,");
            list(items.iter(), out, write_datum);
            out.push(b"]");
        }),
        Datum::Object(object) => deep::level(|| write_object(object, out)),
        Datum::Geometry(_) => match pseudo::to_object(datum) {
            Some(object) => deep::level(|| write_object(&object, out)),
            None => out.push(b"null"),
        },
        plain => out.json(plain),
    }
}

fn write_object(object: &datum::Object, out: &mut BoundedText) {
    let values: Vec<_> = object.iter().collect();
    members(values.iter().map(|(key, value)| (&**key, value)), out, write_datum);
}

fn list<'a, T: 'a>(
    items: impl Iterator<Item = &'a T>,
    out: &mut BoundedText,
    write: fn(&T, &mut BoundedText),
) {
    out.push(b"[");
    for (i, item) in items.enumerate() {
        if out.is_over() {
            return;
        }
        if i > 0 {
            out.push(b",");
        }
        write(item, out);
    }
    out.push(b"]");
}

fn members<'a, T: 'a>(
    members: impl Iterator<Item = (&'a str, &'a T)>,
    out: &mut BoundedText,
    write: fn(&T, &mut BoundedText),
) {
    out.push(b"{");
    for (i, (key, value)) in members.enumerate() {
        if out.is_over() {
            return;
        }
        if i > 0 {
            out.push(b",");
        }
        out.json(&Datum::from(key));
        out.push(b":");
        write(value, out);
    }
    out.push(b"}");
}
