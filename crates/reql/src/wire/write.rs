//! Terms back into the bytes they came from, for functions that are stored.

use datum::{Datum, pseudo};

use crate::deep;
use crate::signature;
use crate::term::Term;

/// The JSON text of `term`; [`super::parse_term`] reads it back.
#[must_use]
pub fn write_term(term: &Term) -> Vec<u8> {
    let mut out = Vec::new();
    write(term, &mut out);
    out
}

fn write(term: &Term, out: &mut Vec<u8>) {
    deep::level(|| match term {
        Term::Datum(datum) => write_datum(datum, out),
        Term::Var(id) => out.extend_from_slice(format!("[10,[{}]]", id.0).as_bytes()),
        Term::Func(func) => {
            out.extend_from_slice(b"[69,[[2,[");
            for (i, param) in func.params.iter().enumerate() {
                let separator = if i == 0 { "" } else { "," };
                out.extend_from_slice(format!("{separator}{}", param.0).as_bytes());
            }
            out.extend_from_slice(b"]],");
            write(&func.body, out);
            out.extend_from_slice(b"]]");
        }
        Term::Call(call) => {
            out.extend_from_slice(format!("[{},", signature::of(call.op).id).as_bytes());
            list(call.args.iter(), out, write);
            if !call.optargs.is_empty() {
                out.push(b',');
                members(call.optargs.iter().map(|(key, term)| (&**key, term)), out, write);
            }
            out.push(b']');
        }
    });
}

/// A value as terms that make it: arrays need to be called so.
fn write_datum(datum: &Datum, out: &mut Vec<u8>) {
    match datum {
        Datum::MinVal => out.extend_from_slice(b"[180,[]]"),
        Datum::MaxVal => out.extend_from_slice(b"[181,[]]"),
        Datum::Array(items) => deep::level(|| {
            out.extend_from_slice(b"[2,");
            list(items.iter(), out, write_datum);
            out.push(b']');
        }),
        Datum::Object(object) => deep::level(|| write_object(object, out)),
        Datum::Geometry(_) => match pseudo::to_object(datum) {
            Some(object) => deep::level(|| write_object(&object, out)),
            None => out.extend_from_slice(b"null"),
        },
        plain => plain.write_json(out),
    }
}

fn write_object(object: &datum::Object, out: &mut Vec<u8>) {
    let values: Vec<_> = object.iter().collect();
    members(values.iter().map(|(key, value)| (&**key, value)), out, write_datum);
}

fn list<'a, T: 'a>(items: impl Iterator<Item = &'a T>, out: &mut Vec<u8>, write: fn(&T, &mut Vec<u8>)) {
    out.push(b'[');
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
}

fn members<'a, T: 'a>(
    members: impl Iterator<Item = (&'a str, &'a T)>,
    out: &mut Vec<u8>,
    write: fn(&T, &mut Vec<u8>),
) {
    out.push(b'{');
    for (i, (key, value)) in members.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        Datum::from(key).write_json(out);
        out.push(b':');
        write(value, out);
    }
    out.push(b'}');
}
