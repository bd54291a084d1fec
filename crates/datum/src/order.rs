//! ReQL's total order, with equality and hashing that agree with it. All of them walk through values and can be
//! cancelled ([`crate::cancel`]).

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use memchr::memmem;

use crate::print::shape_members;
use crate::value::Repr;
use crate::{Array, Datum, Kind, Object, Text, cancel, deep};

impl Ord for Datum {
    /// Orders kinds by name, with `minval` and `maxval` outermost. Within a kind: arrays item by item, objects as
    /// sorted (key, value) pairs, times by instant, text and binary by bytes.
    ///
    /// A geometry sorts like the plain object it is written as. (By name alone it would sort after binaries and
    /// still compare with objects by members, which is not an order.)
    /// Source: docs/reql-spec.md section 3.
    fn cmp(&self, other: &Datum) -> Ordering {
        match (self, other) {
            (Datum::Number(a), Datum::Number(b)) => cmp_numbers(*a, *b),
            (Datum::String(a), Datum::String(b)) => a.cmp(b),
            (Datum::Bool(a), Datum::Bool(b)) => a.cmp(b),
            (Datum::Array(a), Datum::Array(b)) => cmp_arrays(a, b),
            (Datum::Object(a), Datum::Object(b)) => cmp_objects(a, b),
            (Datum::Binary(a), Datum::Binary(b)) => a.cmp(b),
            (Datum::Time(a), Datum::Time(b)) => cmp_numbers(a.epoch_seconds, b.epoch_seconds),
            (Datum::Geometry(a), Datum::Geometry(b)) => cmp_objects(a, b),
            (Datum::Geometry(a), Datum::Object(b)) => cmp_objects(&whole_shape(a), b),
            (Datum::Object(a), Datum::Geometry(b)) => cmp_objects(a, &whole_shape(b)),
            _ => place(self.kind()).cmp(&place(other.kind())),
        }
    }
}

/// The kind whose position `kind` takes in the order.
pub(crate) fn place(kind: Kind) -> Kind {
    match kind {
        Kind::Geometry => Kind::Object,
        other => other,
    }
}

/// Compares finite numbers by value; the zeros are equal.
#[inline]
pub(crate) fn cmp_numbers(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.total_cmp(&b))
}

fn whole_shape(shape: &Object) -> Object {
    Object::from_sorted(shape_members(shape))
}

fn cmp_arrays(a: &Array, b: &Array) -> Ordering {
    match a.is_same(b) || !cancel::may_continue(a.len().min(b.len())) {
        true => Ordering::Equal,
        false => deep::level(|| a.iter().cmp(b.iter())),
    }
}

fn cmp_objects(a: &Object, b: &Object) -> Ordering {
    match (&a.0, &b.0) {
        (Repr::Tree(a), Repr::Tree(b)) if Arc::ptr_eq(a, b) => Ordering::Equal,
        (Repr::Tree(a), Repr::Tree(b)) => cmp_members(&a.0, &b.0),
        _ if have_same_text(a, b) => Ordering::Equal,
        // Both sides are read completely once, so that deep text is not read again at each level.
        _ => match (&a.to_tree().0, &b.to_tree().0) {
            (Repr::Tree(a), Repr::Tree(b)) => cmp_members(&a.0, &b.0),
            _ => Ordering::Equal,
        },
    }
}

fn cmp_members(a: &[(Text, Datum)], b: &[(Text, Datum)]) -> Ordering {
    match cancel::may_continue(a.len().min(b.len())) {
        true => deep::level(|| a.iter().cmp(b.iter())),
        false => Ordering::Equal,
    }
}

/// Whether both are stored text and the same text, which makes them equal.
fn have_same_text(a: &Object, b: &Object) -> bool {
    match (a.stored_text(), b.stored_text()) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

impl PartialOrd for Datum {
    fn partial_cmp(&self, other: &Datum) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Datum {
    fn eq(&self, other: &Datum) -> bool {
        match (self, other) {
            (Datum::Object(a), Datum::Object(b)) => a == b,
            _ => self.cmp(other) == Ordering::Equal,
        }
    }
}

impl Eq for Datum {}

impl Ord for Object {
    fn cmp(&self, other: &Object) -> Ordering {
        cmp_objects(self, other)
    }
}

impl PartialOrd for Object {
    fn partial_cmp(&self, other: &Object) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Object) -> bool {
        match (self.stored_text(), other.stored_text()) {
            (Some(a), Some(b)) if a == b => true,
            (Some(a), Some(b)) if differ_for_sure(a, b) => false,
            _ => self.cmp(other) == Ordering::Equal,
        }
    }
}

/// Whether two different canonical texts certainly encode different values. They always do, except for a zero with
/// a sign and for times in different zones.
fn differ_for_sure(a: &[u8], b: &[u8]) -> bool {
    const CHUNK_BYTES: usize = 64;
    let mut chunks = a.chunks(CHUNK_BYTES).zip(b.chunks(CHUNK_BYTES));
    let (from, to) = chunks.find(|(a, b)| a != b).unwrap_or_default();
    let place = from.iter().zip(to).find(|(a, b)| a != b);
    let is_sign = matches!(place, Some((b'-', b'0') | (b'0', b'-')));
    !is_sign && memmem::find(a, b"$reql_type$").is_none()
}

impl Eq for Object {}

impl Hash for Datum {
    fn hash<H: Hasher>(&self, state: &mut H) {
        place(self.kind()).hash(state);
        match self {
            Datum::MinVal | Datum::MaxVal | Datum::Null => {}
            Datum::Bool(value) => value.hash(state),
            Datum::Number(n) => hash_number(*n, state),
            Datum::String(text) => text.as_bytes().hash(state),
            Datum::Array(items) if !cancel::may_continue(items.len()) => {}
            Datum::Array(items) => deep::level(|| {
                items.len().hash(state);
                items.iter().for_each(|item| item.hash(state));
            }),
            Datum::Object(object) => object.hash(state),
            Datum::Binary(bytes) => bytes.hash(state),
            Datum::Time(time) => hash_number(time.epoch_seconds, state),
            Datum::Geometry(shape) => whole_shape(shape).hash(state),
        }
    }
}

impl Hash for Object {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Repr::Tree(tree) = &self.to_tree().0
            && cancel::may_continue(tree.0.len())
        {
            deep::level(|| {
                tree.0.len().hash(state);
                for (key, value) in &tree.0 {
                    key.as_bytes().hash(state);
                    value.hash(state);
                }
            });
        }
    }
}

fn hash_number<H: Hasher>(number: f64, state: &mut H) {
    // The zeros are equal, so they must have the same hash.
    let number = if number == 0.0 { 0.0 } else { number };
    number.to_bits().hash(state);
}
